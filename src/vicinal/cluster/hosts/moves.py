"""Which machines of a cluster were moved to other hosts than its file says: lines of its journal.

A line that was begun and not ended is a move that was interrupted: nobody knows yet where the
machine is.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from vicinal.cluster.file.model import Cluster
from vicinal.cluster.hosts.record import MOVE_KIND
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Json


@dataclass(frozen=True)
class MoveRecord:
    """A machine that was moved, or is on its way."""

    node: str
    home: str
    """The host that the file has it on."""
    origin: str
    """The host that it was on before."""
    host: str
    """The host that it was moved to."""
    domain: str
    """The machine's name in libvirt."""

    @property
    def key(self) -> str:
        """Its key in the journal."""
        return f"{MOVE_KIND}/{self.node}"

    @property
    def needs(self) -> tuple[str, ...]:
        """It is not made anew with anything of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """What it is found again by."""
        values: dict[str, Json] = asdict(self)
        return values

    @classmethod
    def from_entry(cls, entry: Entry) -> "MoveRecord":
        """The one that a journal has."""
        given: Any = entry.settings
        return cls(**given)


def moves(entries: Mapping[str, Entry]) -> dict[str, MoveRecord]:
    """The machines of which a journal knows where they were moved to, by name."""
    found = [MoveRecord.from_entry(entry) for entry in _entries(entries).values() if entry.whole]
    return {record.node: record for record in found}


def interrupted(entries: Mapping[str, Entry]) -> list[MoveRecord]:
    """The moves of which it does not know how far they came."""
    return [MoveRecord.from_entry(entry) for entry in _entries(entries).values() if not entry.whole]


def all_moves(entries: Mapping[str, Entry]) -> list[MoveRecord]:
    """Both."""
    return [MoveRecord.from_entry(entry) for entry in _entries(entries).values()]


def with_moves(cluster: Cluster, moved: Mapping[str, str]) -> Cluster:
    """A cluster with its machines where they are; `moved` says of some on which host."""
    nodes = [
        replace(node, host=moved[node.name]) if node.name in moved else node
        for node in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(nodes))


def places(cluster: Cluster, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Where machines were moved to, but for those that the file has on another host since."""
    at_home = {node.name: node.host for node in cluster.nodes}
    hosts = {host.name for host in cluster.hosts}
    return {
        record.node: record.host
        for record in moves(entries).values()
        if at_home.get(record.node) == record.home and record.host in hosts
    }


def _entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    return {key: entry for key, entry in entries.items() if key.startswith(f"{MOVE_KIND}/")}
