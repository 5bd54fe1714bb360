"""What is written down of one node, before anything of it is made."""

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
    """A node as it was asked for, and what was chosen for it."""

    spec: ContainerSpec
    runtime: str
    address: str
    number: int
    """Nodes are listed by it."""
    groups: tuple[Group, ...]
    """Control groups that may have been made for it."""

    def write(self, directory: Path) -> None:
        """Put it into the node's directory."""
        write_json(directory / _RECORD, encode(self))

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """What write() wrote; None where it did not get so far."""
        values = read_json(directory / _RECORD)
        return None if values is None else decode(cls, values)


def mark_made(directory: Path) -> None:
    """Say that the node was made to the end."""
    (directory / _MADE).touch()


def is_made(directory: Path) -> bool:
    """Whether mark_made() was called; if not, there is no more than pieces of the node."""
    return (directory / _MADE).exists()


def write_entry(directory: Path, entry: dict[str, Any]) -> None:
    """Say how commands get into the node; it runs from here on."""
    write_json(directory / _ENTRY, entry)


def read_entry(directory: Path) -> dict[str, Any] | None:
    """What write_entry() wrote; None where the node was not started."""
    return read_json(directory / _ENTRY)


def drop_entry(directory: Path) -> None:
    """Nobody gets into the node any more."""
    (directory / _ENTRY).unlink(missing_ok=True)
