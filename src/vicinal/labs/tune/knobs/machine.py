"""The machine whose knobs are turned, and what its knobs have beside those of others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vicinal.base.errors import VicinalError
from vicinal.host.system import Host
from vicinal.labs.tune.knob import Knob, Value
from vicinal.labs.tune.knobs.netlink import Ethtool, KernelEthtool
from vicinal.labs.tune.knobs.network import KernelNetwork, Network


@dataclass(frozen=True)
class Machine:
    """What knobs are read from and written to: this machine, or a fake one in tests."""

    ethtool: Ethtool = field(default_factory=KernelEthtool)
    network: Network = field(default_factory=KernelNetwork)
    host: Host = field(default_factory=Host)


class MachineKnob(Knob, Protocol):
    """A knob of the machine itself, which others have before and after us."""

    @property
    def interface(self) -> str:
        """The network interface that it belongs to; empty for one of an RDMA device."""

    @property
    def part(self) -> str:
        """Its name without that of the device."""

    @property
    def reaches(self) -> str:
        """Whom it concerns, and whom not, as a phrase."""

    @property
    def gentle(self) -> bool:
        """Whether it can be turned without a link going down for a while."""

    def check(self, value: Value) -> Value:
        """The value as read() says it; raises VicinalError for what can be none of it."""


MOST = (1 << 32) - 1
"""The kernel's numbers are of 32 bits."""


def check_number(name: str, value: Value, least: int = 0, most: int = MOST) -> int:
    """The value as a number of that range; raises VicinalError where it is none."""
    if not isinstance(value, int) or not least <= value <= most:
        raise VicinalError(
            f"{name} cannot be {value}", f"give it a whole number from {least} to {most}"
        )
    return value


def check_word(name: str, value: Value, words: Mapping[str, int]) -> int:
    """The number that a word stands for; raises VicinalError where it is none of these."""
    if not isinstance(value, str) or value not in words:
        raise VicinalError(f"{name} cannot be {value}", f"give it one of {', '.join(words)}")
    return words[value]
