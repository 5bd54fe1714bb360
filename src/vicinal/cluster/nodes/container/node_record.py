"""The files that describe one node, which commands read to find, enter and remove the node."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vicinal.base.codec import decode, encode
from vicinal.cluster.nodes.container.cgroup import Group
from vicinal.cluster.nodes.container.spec import ContainerSpec
from vicinal.cluster.nodes.container.state import read_json, write_json

_RECORD = "node.json"
_ENTRY = "entry.json"
_MADE = "made"


@dataclass(frozen=True)
class NodeRecord:
    """The specification of a node and the choices for it; written before the node is created."""

    spec: ContainerSpec
    runtime: str
    address: str
    number: int
    """Position of the node in lists of nodes."""
    groups: tuple[Group, ...]
    """Control groups that may exist for the node."""

    def write(self, directory: Path) -> None:
        """Write the record into the node's directory."""
        write_json(directory / _RECORD, encode(self))

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the record in a node's directory; None if there is none."""
        values = read_json(directory / _RECORD)
        return None if values is None else decode(cls, values)


def mark_made(directory: Path) -> None:
    """Record that the node was created completely."""
    (directory / _MADE).touch()


def is_made(directory: Path) -> bool:
    """Return whether mark_made() was called; if not, only parts of the node exist."""
    return (directory / _MADE).exists()


def write_entry(directory: Path, entry: dict[str, Any]) -> None:
    """Record how commands enter the node; from then on the node counts as started."""
    write_json(directory / _ENTRY, entry)


def read_entry(directory: Path) -> dict[str, Any] | None:
    """Return the values of write_entry(); None if the node was not started."""
    return read_json(directory / _ENTRY)


def drop_entry(directory: Path) -> None:
    """Remove the entry, so that commands no longer enter the node."""
    (directory / _ENTRY).unlink(missing_ok=True)
