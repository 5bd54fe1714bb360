"""A knob: one thing that can be set, and the values worth trying; a setting is what several have.

What searches for a good setting knows knobs by this alone, whatever they turn: a card's interrupt
moderation, the processors of an interrupt, a variable of an MPI library, or a simulated machine.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

Value = int | str
"""What a knob has: a number of its unit, or one of several words, such as `on` and `off`."""

Setting = Mapping[str, Value]
"""Values of knobs by the knobs' names; a knob that is not named stays as it is."""


class Knob(Protocol):
    """One thing that can be set."""

    @property
    def name(self) -> str:
        """Its name, by which a setting calls it: unique on a machine, such as `eth0/rx-usecs`."""

    @property
    def unit(self) -> str:
        """What its numbers count, such as `us` and `frames`; empty where its values are words."""

    @property
    def values(self) -> Sequence[Value]:
        """The values worth trying: at least one, none twice, and numbers in ascending order.

        What read() finds need not be among them.
        """

    def read(self) -> Value:
        """The value that it has now; raises VicinalError where that cannot be read."""

    def write(self, value: Value) -> None:
        """Set it; raises VicinalError, and leaves it as it was, where that is refused."""
