"""The facts that containers of one host need about the other hosts of their cluster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vicinal.base.codec import SPARSE, decode, encode
from vicinal.cluster.nodes.container.state import read_json, write_json

_FILE = "neighbours.json"


@dataclass(frozen=True)
class Neighbours:
    """Names and IPv4 addresses of all containers, in one network over all hosts."""

    head: str
    """Address of this host's head."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Addresses of this host's containers, by name."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Addresses of other hosts' containers, by name."""
    mtu: int | None = field(default=None, metadata=SPARSE)
    """MTU of the network in bytes; None for Ethernet's MTU."""

    @classmethod
    def of(cls, head: str, addresses: Mapping[str, str], own: Collection[str]) -> Self:
        """Split all addresses, by name, into those of this host's containers `own` and the rest."""
        return cls(
            head,
            own={name: address for name, address in addresses.items() if name in own},
            others={name: address for name, address in addresses.items() if name not in own},
        )

    def write(self, directory: Path) -> None:
        """Store the neighbours in a cluster's state directory."""
        write_json(directory / _FILE, encode(self))

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the stored neighbours; None for a cluster on one host."""
        values = read_json(directory / _FILE)
        return None if values is None else decode(cls, values)
