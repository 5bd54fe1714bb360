"""What containers of one host know of those on the other hosts of their cluster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vicinal.base.codec import SPARSE, decode, encode
from vicinal.cluster.nodes.container.state import read_json, write_json

_FILE = "neighbours.json"


@dataclass(frozen=True)
class Neighbours:
    """Names and addresses, in one network over all hosts."""

    head: str
    """IPv4 address of this host's head there."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the containers of this host."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Those of other hosts'."""
    mtu: int | None = field(default=None, metadata=SPARSE)
    """The largest packet of their network; None: Ethernet's."""

    @classmethod
    def of(cls, head: str, addresses: Mapping[str, str], own: Collection[str]) -> Self:
        """From all addresses in the cluster, and the names of this host's containers."""
        return cls(
            head,
            own={name: address for name, address in addresses.items() if name in own},
            others={name: address for name, address in addresses.items() if name not in own},
        )

    def write(self, directory: Path) -> None:
        """Keep it in a cluster's directory."""
        write_json(directory / _FILE, encode(self))

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """What write() kept; None: the cluster is on one host."""
        values = read_json(directory / _FILE)
        return None if values is None else decode(cls, values)
