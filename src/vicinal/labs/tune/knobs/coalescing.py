"""Interrupt moderation of a network interface: how long a card gathers packets, and how many.

All kinds of interfaces have the same knobs: Ethernet, its VFs, IPoIB, virtio-net.
"""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.host import TunedHost, check_number, check_word
from vicinal.labs.tune.knobs.netlink import WORDS

_ON_OFF = {"off": 0, "on": 1}

_USECS = (0, 1, 2, 5, 10, 20, 50, 100, 200)
_FRAMES = (1, 2, 4, 8, 16, 32, 64, 88, 128)
_RATES = (1000, 10_000, 100_000, 450_000, 1_000_000)

_GRID: dict[str, tuple[Sequence[Value], str]] = {
    "adaptive-rx": (tuple(_ON_OFF), ""),
    "adaptive-tx": (tuple(_ON_OFF), ""),
    "rx-usecs": (_USECS, "us"),
    "rx-frames": (_FRAMES, "frames"),
    "tx-usecs": (_USECS, "us"),
    "tx-frames": (_FRAMES, "frames"),
    "rx-usecs-irq": (_USECS, "us"),
    "rx-frames-irq": (_FRAMES, "frames"),
    "tx-usecs-irq": (_USECS, "us"),
    "tx-frames-irq": (_FRAMES, "frames"),
    "pkt-rate-low": (_RATES, "packets/s"),
    "rx-usecs-low": ((0, 10, 40, 100), "us"),
    "rx-frame-low": (_FRAMES, "frames"),
    "tx-usecs-low": ((0, 10, 40, 100), "us"),
    "tx-frame-low": (_FRAMES, "frames"),
    "pkt-rate-high": (_RATES, "packets/s"),
    "rx-usecs-high": ((40, 100, 300, 1000), "us"),
    "rx-frame-high": (_FRAMES, "frames"),
    "tx-usecs-high": ((40, 100, 300, 1000), "us"),
    "tx-frame-high": (_FRAMES, "frames"),
    "sample-interval": ((0, 1, 2, 5), "s"),
    "stats-block-usecs": ((0, 1000, 100_000, 1_000_000), "us"),
    "cqe-mode-rx": (tuple(_ON_OFF), ""),
    "cqe-mode-tx": (tuple(_ON_OFF), ""),
    "tx-aggr-max-bytes": ((0, 4096, 16_384, 65_536), "B"),
    "tx-aggr-max-frames": ((0, 1, 8, 32), "frames"),
    "tx-aggr-time-usecs": ((0, 10, 100, 1000), "us"),
}
"""Values worth trying, with those of P3: 88 frames against 1, and 40 and 1000 us. Many adaptive
drivers begin at 450,000 packets/s.
"""

PARTS = tuple(_GRID)
"""The names of `ethtool -C`."""


class CoalescingKnob:
    """One part of one interface's interrupt moderation."""

    gentle = True

    def __init__(self, host: TunedHost, interface: str, part: str) -> None:
        self._host = host
        self.interface = interface
        self.part = part
        self.name = f"{interface}/{part}"
        self.values, self.unit = _GRID[part]

    @property
    def reaches(self) -> str:
        """What the knob affects, as a phrase."""
        if self.part.startswith("rx") or self.part == "adaptive-rx":
            return "packets that arrive; not user verbs"
        if self.part.startswith("tx") or self.part == "adaptive-tx":
            return "packets that were sent; not user verbs"
        return "how the driver chooses; not user verbs"

    def check(self, value: Value) -> Value:
        """The value. Raises VicinalError for an invalid value."""
        self._number(value)
        return value

    def read(self) -> Value:
        """The value that the driver reports."""
        found = self._host.ethtool.coalescing(self.interface)
        if self.part not in found:
            raise VicinalError(
                f"the driver of {self.interface} has no {self.part}",
                f"use {', '.join(found)}" if found else "remove the knob: the driver has none",
            )
        number = found[self.part]
        return ("off", "on")[bool(number)] if self.part in WORDS else number

    def write(self, value: Value) -> None:
        self._host.ethtool.set_coalescing(self.interface, self.part, self._number(value))

    def _number(self, value: Value) -> int:
        if self.part in WORDS:
            return check_word(self.name, value, _ON_OFF)
        return check_number(self.name, value)
