"""A knob: one thing that can be set, with the values worth trying. A setting has values of knobs.

A search uses knobs only by this protocol. A knob may be a card's interrupt moderation, the
processors of an interrupt, a variable of an MPI library, or part of a simulated host.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

Value = int | str
"""A knob's value: a number in the knob's unit, or one of several words, such as `on` and `off`."""

Setting = Mapping[str, Value]
"""Values by the names of knobs; a knob without a value stays as it is."""


class Knob(Protocol):
    """One thing that can be set."""

    @property
    def name(self) -> str:
        """Its name in a setting: unique on a host, such as `eth0/rx-usecs`."""

    @property
    def unit(self) -> str:
        """The unit of its numbers, such as `us` and `frames`; empty if its values are words."""

    @property
    def values(self) -> Sequence[Value]:
        """The values worth trying: at least one, no duplicates, and numbers in ascending order.

        read() may return other values.
        """

    def read(self) -> Value:
        """The present value. Raises VicinalError if the value cannot be read."""

    def write(self, value: Value) -> None:
        """Set the value. If the value is refused, raises VicinalError and leaves the knob as
        it was.
        """
