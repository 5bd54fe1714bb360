"""What the command's host keeps of a cluster over several hosts: lines of its journal.

A host with a share of the cluster (HostRecord), a machine that was moved to another host than the
file says (MoveRecord), and that all machines are saved (SaveRecord). A line of the last two that
was begun and not ended is an act that was interrupted: nobody knows yet where the machine is, or
whether some machines stand still, or are saved, while others run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.hosts import share_name
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Json

KIND = "host"
MOVE_KIND = "move"
"""Of machines that were moved from one to another."""
SAVE_KIND = "save"
"""That the machines on all of them are saved."""
SAVE_KEY = f"{SAVE_KIND}/main"
"""The line's key: all machines are saved together."""


@dataclass(frozen=True)
class HostRecord:
    """A host with a share of a cluster."""

    cluster: str
    host: str
    nodes: tuple[str, ...]
    """Names of the nodes that it has."""
    machines: tuple[str, ...]
    """Those of them that are virtual machines."""
    alone: tuple[str, ...]
    """Those of these that have no network with the others."""
    address: str
    """IPv4 address by which other hosts reach it; empty where nobody needed it."""
    hypervisor: str
    """URI of its libvirt, as it is reached there."""
    bridge: str = ""
    """That its nodes are at; empty: machines are joined with those of others by wires."""
    containers: tuple[str, ...] = ()
    """Those of the nodes that are containers."""

    @property
    def key(self) -> str:
        """Its key in the journal."""
        return f"{KIND}/{self.host}"

    @property
    def needs(self) -> tuple[str, ...]:
        """It is not made anew with anything of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """What it is found again by."""
        return encode(self)

    @property
    def share(self) -> str:
        """The name under which that host keeps its share."""
        return share_name(self.cluster, self.host)

    @property
    def is_this(self) -> bool:
        """Whether it is the host that we run on."""
        return Host(self.host).is_this

    def without(self, machine: str) -> "HostRecord":
        """The same after a machine has left."""
        return replace(
            self,
            nodes=tuple(name for name in self.nodes if name != machine),
            machines=tuple(name for name in self.machines if name != machine),
        )

    def having(self, machine: str) -> "HostRecord":
        """The same after a machine has come."""
        return replace(self, nodes=(*self.nodes, machine), machines=(*self.machines, machine))


def host_records(entries: Mapping[str, Entry]) -> list[HostRecord]:
    """The hosts that a journal has, in order."""
    found = [entry for key, entry in entries.items() if key.startswith(f"{KIND}/")]
    return [decode(HostRecord, entry.settings) for entry in found]


def on_this_host(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """What a journal has beside them, and beside what is done with all: that is on this host."""
    others = (f"{KIND}/", f"{MOVE_KIND}/", f"{SAVE_KIND}/")
    return {key: entry for key, entry in entries.items() if not key.startswith(others)}


def check_on_this_host(name: str, entries: Mapping[str, Entry]) -> None:
    """Raise VicinalError where a cluster is on several hosts, and the file has it on this one."""
    hosts = [record.host for record in host_records(entries)]
    if hosts:
        raise VicinalError(
            f"the cluster {name} is on the hosts {', '.join(hosts)}, and the file names none",
            f"call `vicinal down {name}` first, or name them under hosts",
        )


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
        return encode(self)


def moves(entries: Mapping[str, Entry]) -> dict[str, MoveRecord]:
    """The machines of which a journal knows where they were moved to, by name."""
    found = [
        decode(MoveRecord, entry.settings)
        for entry in _move_entries(entries).values()
        if entry.whole
    ]
    return {record.node: record for record in found}


def interrupted(entries: Mapping[str, Entry]) -> list[MoveRecord]:
    """The moves of which it does not know how far they came."""
    return [
        decode(MoveRecord, entry.settings)
        for entry in _move_entries(entries).values()
        if not entry.whole
    ]


def all_moves(entries: Mapping[str, Entry]) -> list[MoveRecord]:
    """Both."""
    return [decode(MoveRecord, entry.settings) for entry in _move_entries(entries).values()]


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


def _move_entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    return {key: entry for key, entry in entries.items() if key.startswith(f"{MOVE_KIND}/")}


@dataclass(frozen=True)
class SaveRecord:
    """All that there is to say of it."""

    @property
    def key(self) -> str:
        """Its key in the journal."""
        return SAVE_KEY

    @property
    def needs(self) -> tuple[str, ...]:
        """It is not made anew with anything of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """None: each host knows what it has."""
        return {}


def is_saved(entries: Mapping[str, Entry]) -> bool:
    """Whether all machines were saved, and nobody began to let them go on."""
    return SAVE_KEY in entries and entries[SAVE_KEY].whole


def is_half_saved(entries: Mapping[str, Entry]) -> bool:
    """Whether a command did not come to the end of saving them, or of letting them go on."""
    return SAVE_KEY in entries and not entries[SAVE_KEY].whole
