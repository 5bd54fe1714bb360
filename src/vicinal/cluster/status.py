"""The present state of a cluster, for display and for the messages between hosts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vicinal.base.errors import VicinalError
from vicinal.base.printable import printable
from vicinal.cluster.nodes.vm.layout import Made
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Condition, Observation, Resource, all_of, find
from vicinal.cluster.plan.state import is_worked_on
from vicinal.cluster.resources.containers import ContainersResource
from vicinal.cluster.resources.host_node import HostNodeResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.vms import IS_SAVED, VmResource, VmsResource
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError

SAVED = "saved"
"""The state of a VM that `vicinal restore` can restore."""

_LONGEST_TEXT = 1024


@dataclass(frozen=True)
class Piece:
    """The state of one resource of a cluster."""

    key: str
    condition: Condition
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "condition": self.condition, "why": self.why}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the state that another host sent, with text that is safe for a terminal."""
        condition = Condition(values["condition"])
        return cls(_text(values["key"]), condition, _text(values["why"]))


@dataclass(frozen=True)
class NodeState:
    """The state of a node, for people."""

    name: str
    state: str
    address: str
    cpus: tuple[int, ...]
    """Processors of the host; empty: any."""
    memory_bytes: int | None
    """The node's memory or its limit; None: no limit."""
    runtime: str
    """The container runtime, libvirt with the accelerator, or `this host`."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "address": self.address,
            "processors": list(self.cpus),
            "memory_bytes": self.memory_bytes,
            "runtime": self.runtime,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the state that another host sent, with text that is safe for a terminal."""
        memory = values["memory_bytes"]
        return cls(
            name=_text(values["name"]),
            state=_text(values["state"]),
            address=_text(values["address"]),
            cpus=tuple(int(each) for each in values["processors"]),
            memory_bytes=None if memory is None else int(memory),
            runtime=_text(values["runtime"]),
        )


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster or of a host's part."""

    name: str
    pieces: tuple[Piece, ...]
    nodes: tuple[NodeState, ...] = ()
    region: Path | None = None
    limitations: tuple[str, ...] = ()
    """What the host could not provide, as phrases."""
    accelerator: Made | None = None
    """The accelerator of the cluster's VMs; None without VMs."""
    libvirt: str | None = None
    """URI of the VMs' libvirt; None without VMs."""
    busy: bool = False
    """Whether another command works on the cluster."""
    hosts: tuple["HostState", ...] = ()
    """The parts of a cluster over several hosts, with the nodes and regions."""

    @property
    def whole(self) -> bool:
        """Whether everything is ready, and the cluster has nodes, in which jobs can run."""
        return self.ready and self.has_nodes

    @property
    def ready(self) -> bool:
        """Whether all existing resources are ready; a host's part may have no nodes."""
        return bool(self.pieces) and all(
            piece.condition is Condition.READY for piece in self.pieces
        )

    @property
    def has_nodes(self) -> bool:
        """Whether the cluster has nodes on any host."""
        return bool(self.nodes) or any(
            host.state is not None and host.state.has_nodes for host in self.hosts
        )

    def to_dict(self) -> dict[str, Any]:
        made = self.accelerator
        own = [each.to_dict() for each in self.nodes]
        beyond = [
            {**node.to_dict(), "host": host.name}
            for host in self.hosts
            if host.state is not None
            for node in host.state.nodes
        ]
        return {
            "name": self.name,
            "whole": self.whole,
            "region": None if self.region is None else str(self.region),
            "pieces": [piece.to_dict() for piece in self.pieces],
            "nodes": [*own, *beyond],
            "limitations": list(self.limitations),
            "accelerator": None if made is None else made.accelerator,
            "accelerator_reason": None if made is None else made.reason,
            "libvirt": self.libvirt,
            "busy": self.busy,
            "hosts": [each.to_dict() for each in self.hosts],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the state of a part that another host sent, with text safe for a terminal.

        Raises ValueError, KeyError or TypeError if it is malformed.
        """
        kind, region = values["accelerator"], values["region"]
        made = None
        if kind is not None:
            made = Made(Accelerator(kind), _text(values["accelerator_reason"]), ())
        uri = values["libvirt"]
        return cls(
            name=_text(values["name"]),
            pieces=tuple(map(Piece.from_dict, values["pieces"])),
            nodes=tuple(map(NodeState.from_dict, values["nodes"])),
            region=None if region is None else Path(_text(region)),
            limitations=tuple(map(_text, values["limitations"])),
            accelerator=made,
            libvirt=None if uri is None else _text(uri),
            busy=bool(values["busy"]),
        )


@dataclass(frozen=True)
class HostState:
    """The state of a host's part of a cluster."""

    name: str
    state: ClusterState | None
    """None: the host did not answer, or has no part."""
    why: str = ""
    """The reason if `state` is None."""

    def to_dict(self) -> dict[str, Any]:
        state = None if self.state is None else self.state.to_dict()
        return {"name": self.name, "why": self.why, "state": state}


def state_on_this_host(
    name: str, entries: Mapping[str, Entry], resources: Mapping[str, Resource]
) -> ClusterState:
    """Return the present state of a cluster on this host.

    `entries` and `resources` are those of its journal.
    """
    busy = is_worked_on(name)
    pieces = [
        seen(key, entry, _observe(resources[key]), busy=busy) for key, entry in entries.items()
    ]
    nodes = [_host_node_facts(each) for each in all_of(resources, HostNodeResource)]
    limitations: tuple[str, ...] = ()
    head = find(resources, ContainersResource)
    if head is not None and head.observe().condition is Condition.READY:
        try:
            nodes += _container_facts(head)
            limitations = tuple(dict.fromkeys(head.open().limitations))
        except VicinalError:
            if not busy:  # otherwise a command removed it during the check
                raise
    made = None
    common = find(resources, VmsResource)
    if common is not None and common.observe().condition is Condition.READY:
        made = common.made()
    found = {piece.key: piece for piece in pieces}
    nodes += [_vm_facts(each.vm, found[each.key], made) for each in all_of(resources, VmResource)]
    region = find(resources, RegionResource)
    return ClusterState(
        name=name,
        pieces=tuple(pieces),
        nodes=tuple(nodes),
        region=None if region is None else region.path,
        limitations=limitations,
        accelerator=made,
        libvirt=None if common is None else common.uri,
        busy=busy,
    )


def seen(key: str, entry: Entry, observed: Observation, *, busy: bool) -> Piece:
    """Return the state of a resource from its journal entry and observation.

    While another command works on the cluster (`busy`), a half-made resource is not broken.
    """
    if busy and not (entry.whole and observed.condition is Condition.READY):
        return Piece(key, Condition.CHANGING, "another command works on it")
    if not entry.whole:
        return Piece(key, Condition.BROKEN, "a command was interrupted while it changed this")
    return Piece(key, observed.condition, observed.why)


def _observe(resource: Resource) -> Observation:
    """Observe a resource; a libvirt that does not answer makes it broken instead of an error."""
    try:
        return resource.observe()
    except UnreachableError as error:
        return Observation(Condition.BROKEN, f"{error.message}: {error.remedy}")


def _vm_facts(vm: Vm, piece: Piece, made: Made | None) -> NodeState:
    state = "running" if piece.condition is Condition.READY else piece.condition.value
    return NodeState(
        name=vm.name,
        state=SAVED if piece.why == IS_SAVED else state,
        address=vm.address,
        cpus=vm.processors,
        memory_bytes=vm.memory_mib << 20,
        runtime="libvirt" if made is None else f"libvirt, {made.accelerator.value.upper()}",
    )


def _host_node_facts(resource: HostNodeResource) -> NodeState:
    node = resource.node
    condition = resource.observe().condition
    return NodeState(
        name=node.name,
        state="running" if condition is Condition.READY else condition.value,
        address=node.nodes[0].address,
        cpus=node.cpus,
        memory_bytes=None,
        runtime="this host",
    )


def _container_facts(head: ContainersResource) -> list[NodeState]:
    return [
        NodeState(
            name=each.spec.name,
            state=each.state,
            address=each.address,
            cpus=each.spec.cpus,
            memory_bytes=each.spec.memory,
            runtime=each.runtime,
        )
        for each in head.open().containers()
    ]


def _text(value: Any) -> str:
    return printable(str(value)[:_LONGEST_TEXT])
