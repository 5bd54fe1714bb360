"""What containers of one host know of those on the other hosts of their cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from vicinal.cluster.containers.state import read_json, write_json

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

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"head": self.head, "own": dict(self.own), "others": dict(self.others)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Self | None:
        """The inverse of to_dict(); None where there is nothing."""
        return None if values is None else cls(values["head"], values["own"], values["others"])

    def write(self, directory: Path) -> None:
        """Keep it in a cluster's directory."""
        write_json(directory / _FILE, self.to_dict())

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """What write() kept; None: the cluster is on one host."""
        return cls.from_dict(read_json(directory / _FILE))
