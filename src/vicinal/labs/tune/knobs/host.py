"""The host whose knobs are set, and the protocol of its knobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vicinal.base.errors import VicinalError
from vicinal.host.system import Host
from vicinal.labs.tune.knob import Knob, Value
from vicinal.labs.tune.knobs.netlink import Ethtool, KernelEthtool
from vicinal.labs.tune.knobs.network import KernelNetwork, Network


@dataclass(frozen=True)
class TunedHost:
    """The interfaces by which knobs are read and written: of this host, or fake ones in tests."""

    ethtool: Ethtool = field(default_factory=KernelEthtool)
    network: Network = field(default_factory=KernelNetwork)
    system: Host = field(default_factory=Host)


class HostKnob(Knob, Protocol):
    """A knob of the host itself, which other programs use before and after a search."""

    @property
    def interface(self) -> str:
        """The network interface of the knob; empty for an RDMA device's knob."""

    @property
    def part(self) -> str:
        """The knob's name without the device."""

    @property
    def reaches(self) -> str:
        """What the knob affects, as a phrase."""

    @property
    def gentle(self) -> bool:
        """Whether the knob can be set without a link going down for a while."""

    def check(self, value: Value) -> Value:
        """The value as read() returns it. Raises VicinalError for an invalid value."""


MOST = (1 << 32) - 1
"""The kernel's numbers have 32 bits."""


def check_number(name: str, value: Value, least: int = 0, most: int = MOST) -> int:
    """The value as a number from `least` to `most`. Raises VicinalError for any other value."""
    if not isinstance(value, int) or not least <= value <= most:
        raise VicinalError(
            f"{name} cannot be {value!r}", f"use a whole number from {least} to {most}"
        )
    return value


def check_word(name: str, value: Value, words: Mapping[str, int]) -> int:
    """The number of a word. Raises VicinalError for any other value."""
    if not isinstance(value, str) or value not in words:
        raise VicinalError(f"{name} cannot be {value!r}", f"use one of {', '.join(words)}")
    return words[value]
