"""The number of queues of a network interface; each queue has an interrupt of its own."""

from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.host import TunedHost, check_number

PARTS = ("channels-combined", "channels-rx", "channels-tx")
_PREFIX = "channels-"


class ChannelsKnob:
    """The number of an interface's queues of one kind."""

    gentle = False
    unit = "queues"

    def __init__(self, host: TunedHost, interface: str, part: str) -> None:
        self._host = host
        self.interface = interface
        self.part = part
        self.name = f"{interface}/{part}"
        self._kind = part.removeprefix(_PREFIX)

    @property
    def reaches(self) -> str:
        """What the knob affects, as a phrase."""
        return "how many processors take its packets; its link may go down shortly"

    @property
    def values(self) -> Sequence[Value]:
        """Powers of two up to the maximum, and the maximum."""
        most = self._found().get(f"{self._kind}-max", 1)
        powers = [1 << bit for bit in range(most.bit_length()) if 1 << bit < most]
        return (*powers, most)

    def check(self, value: Value) -> Value:
        """The number. Raises VicinalError if the interface cannot have this number of queues."""
        return check_number(self.name, value, 0, self._found().get(f"{self._kind}-max", 1))

    def read(self) -> Value:
        return self._found()[self._kind]

    def write(self, value: Value) -> None:
        """Set the number of queues."""
        self.check(value)
        assert isinstance(value, int)
        self._host.ethtool.set_channels(self.interface, self._kind, value)

    def _found(self) -> Mapping[str, int]:
        found = self._host.ethtool.channels(self.interface)
        if self._kind not in found:
            kinds = ", ".join(f"{_PREFIX}{kind}" for kind in found if not kind.endswith("-max"))
            raise VicinalError(
                f"the driver of {self.interface} has no {self.part}",
                f"use {kinds}" if kinds else "remove the knob: the driver has no queues to set",
            )
        return found
