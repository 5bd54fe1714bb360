"""Records of a cluster over several hosts in the journal of the command's host.

HostRecord is a host with a part of the cluster, MoveRecord a VM on another host than the file
says, and SaveRecord that all VMs are saved. A MoveRecord or SaveRecord that is not complete belongs
to an interrupted command: the VM may be on either host, or some VMs may be paused or saved while
others run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.hosts import host_part_name
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Json

KIND = "host"
MOVE_KIND = "move"
SAVE_KIND = "save"
SAVE_KEY = f"{SAVE_KIND}/main"
"""The key of the only SaveRecord: all VMs are saved together."""


@dataclass(frozen=True)
class HostRecord:
    """A host with a part of a cluster."""

    cluster: str
    host: str
    nodes: tuple[str, ...]
    """Names of the host's nodes."""
    vms: tuple[str, ...]
    """Names of the nodes that are VMs."""
    alone: tuple[str, ...]
    """Names of the VMs that have no network with the other VMs."""
    address: str
    """IPv4 address by which other hosts reach this host; empty if none needs it."""
    hypervisor: str
    """URI of the host's libvirt, as the host itself reaches it."""
    bridge: str = ""
    """The bridge of the host's nodes; empty: UDP wires connect VMs of different hosts."""
    containers: tuple[str, ...] = ()
    """Names of the nodes that are containers."""

    @property
    def key(self) -> str:
        """host/HOST, the record's key in the journal."""
        return f"{KIND}/{self.host}"

    @property
    def needs(self) -> tuple[str, ...]:
        """No resource of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """The record's fields."""
        return encode(self)

    @property
    def host_part(self) -> str:
        """The name under which the host stores its part."""
        return host_part_name(self.cluster, self.host)

    @property
    def is_this(self) -> bool:
        """Whether this process runs on the host."""
        return Host(self.host).is_this

    def without(self, vm: str) -> "HostRecord":
        """Return the record after a VM has left the host."""
        return replace(
            self,
            nodes=tuple(name for name in self.nodes if name != vm),
            vms=tuple(name for name in self.vms if name != vm),
        )

    def having(self, vm: str) -> "HostRecord":
        """Return the record after a VM has arrived on the host."""
        return replace(self, nodes=(*self.nodes, vm), vms=(*self.vms, vm))


def host_records(entries: Mapping[str, Entry]) -> list[HostRecord]:
    """Return the hosts in a journal, in order."""
    found = [entry for key, entry in entries.items() if key.startswith(f"{KIND}/")]
    return [decode(HostRecord, entry.settings) for entry in found]


def on_this_host(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the journal's entries of resources on this host."""
    others = (f"{KIND}/", f"{MOVE_KIND}/", f"{SAVE_KIND}/")
    return {key: entry for key, entry in entries.items() if not key.startswith(others)}


def check_on_this_host(name: str, entries: Mapping[str, Entry]) -> None:
    """Raise VicinalError if a cluster over several hosts exists, and the file now names none."""
    hosts = [record.host for record in host_records(entries)]
    if hosts:
        raise VicinalError(
            f"the cluster {name} is on the hosts {', '.join(hosts)}, and the file names none",
            f"call `vicinal down {name}` first, or list the hosts under hosts",
        )


@dataclass(frozen=True)
class MoveRecord:
    """A VM that has moved or is moving."""

    node: str
    home: str
    """The VM's host in the file."""
    origin: str
    """The host before the move."""
    host: str
    """The host after the move."""
    domain: str
    """The VM's name in libvirt."""

    @property
    def key(self) -> str:
        """move/NODE, the record's key in the journal."""
        return f"{MOVE_KIND}/{self.node}"

    @property
    def needs(self) -> tuple[str, ...]:
        """No resource of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """The record's fields."""
        return encode(self)


def moves(entries: Mapping[str, Entry]) -> dict[str, MoveRecord]:
    """Return the complete moves in a journal, by the VM's name."""
    found = [
        decode(MoveRecord, entry.settings)
        for entry in _move_entries(entries).values()
        if entry.whole
    ]
    return {record.node: record for record in found}


def interrupted(entries: Mapping[str, Entry]) -> list[MoveRecord]:
    """Return the moves in a journal that were interrupted."""
    return [
        decode(MoveRecord, entry.settings)
        for entry in _move_entries(entries).values()
        if not entry.whole
    ]


def all_moves(entries: Mapping[str, Entry]) -> list[MoveRecord]:
    """Return the complete and the interrupted moves in a journal."""
    return [decode(MoveRecord, entry.settings) for entry in _move_entries(entries).values()]


def with_moves(cluster: Cluster, moved: Mapping[str, str]) -> Cluster:
    """Return a cluster whose moved VMs are on their present hosts; `moved` maps VMs to hosts."""
    nodes = [
        replace(node, host=moved[node.name]) if node.name in moved else node
        for node in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(nodes))


def present_hosts(cluster: Cluster, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the present host of each moved VM, by its name.

    A move no longer counts if the file has changed the VM's host since, or lost its present host.
    """
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
    """All VMs of the cluster are saved, or are being saved or restored."""

    @property
    def key(self) -> str:
        """The record's key in the journal."""
        return SAVE_KEY

    @property
    def needs(self) -> tuple[str, ...]:
        """No resource of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """Empty: each host knows its own VMs."""
        return {}


def is_saved(entries: Mapping[str, Entry]) -> bool:
    """Whether all VMs were saved, and no command has begun to restore them."""
    return SAVE_KEY in entries and entries[SAVE_KEY].whole


def is_half_saved(entries: Mapping[str, Entry]) -> bool:
    """Whether a command was interrupted while it saved or restored the VMs."""
    return SAVE_KEY in entries and not entries[SAVE_KEY].whole
