"""Moving a VM of a cluster from one of its hosts to another, and repairing interrupted moves.

The command requests the steps of the move one by one from the agents of both hosts, and has libvirt
move the VM. The cluster's journal records the move before its start (MoveRecord). The journal of
the VM's new host contains the VM before its arrival, and the journal of its old host until it is
gone. So `down` finds the VM wherever it is. Both hosts' parts are locked during the move.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError
from vicinal.base.printable import printable
from vicinal.cluster.hosts.connection import HostPartConnection, Request, connected
from vicinal.cluster.hosts.far_libvirt import libvirt_of
from vicinal.cluster.hosts.record import HostRecord, MoveRecord, host_records, interrupted, moves
from vicinal.cluster.nodes.vm.from_file import check_may_give_away
from vicinal.cluster.nodes.vm.migration_host import LocalMigrationHost
from vicinal.cluster.nodes.vm.ranks import Endpoint, Return
from vicinal.cluster.nodes.vm.vm import Vm, write_commands
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.resource import Json, Resource, all_of, find
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.vfs import VfResource
from vicinal.cluster.resources.vms import VmResource, VmsResource
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import SharedRegion

if TYPE_CHECKING:
    from vicinal.cluster.nodes.vm.migration import Report
    from vicinal.cluster.vm.libvirt.side import Side

Say = Callable[[str], None]


class MoveStep(StrEnum):
    """A step of a move that a host executes."""

    LEAVES = "leaves"
    """Check that the VM can leave the host."""
    COMES = "comes"
    """Check that the VM can come to the host, and record its arrival."""
    SEND_OUT = "send out"
    """Have the VM's ranks leave the host's region."""
    CLOSE = "close"
    """Close the host's connections to the VM."""
    WITHDRAW = "withdraw"
    """The guest has released its VF, whose addresses the other host will use."""
    ANNOUNCE = "announce"
    """Set up the host's VF, which the guest is about to get, or to get back."""
    CALL_BACK = "call back"
    """Let the VM's ranks return to the host's region."""
    AWAIT_BACK = "await back"
    """Wait until the VM's ranks are in the host's region."""
    GONE = "gone"
    """The VM has left the host."""
    ARRIVED = "arrived"
    """The VM has arrived on the host."""
    STAYS = "stays"
    """The VM does not come to the host."""
    LOOK = "look"
    """Describe the VM if the host's journal has it, after an interrupted move."""


class RemoteMigrationHost:
    """A host's part in the move of a VM, which the host's agent executes."""

    def __init__(self, connection: HostPartConnection, record: HostRecord, node: str) -> None:
        self.record = record
        self._connection = connection
        self._node = node
        self._described: dict[str, Any] = {}
        self._owed = 0
        """Number of missing answers, including those of interrupted requests."""

    @property
    def domain(self) -> str:
        """The VM's name in libvirt."""
        return str(self._described["domain"])

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of VMs on the host."""
        return Accelerator(self._described["accelerator"])

    def leaves(self) -> dict[str, Any]:
        """Check that the VM can leave; return the settings of the VM and of its VF."""
        self._described = self.ask(MoveStep.LEAVES)
        return {each: self._described[each] for each in ("vm", "vf")}

    def comes(self, what: Mapping[str, Any]) -> None:
        """Check that the VM can come, and prepare its arrival; `what` is the result of leaves()."""
        self._described = self.ask(MoveStep.COMES, bridge=self.record.bridge, **what)

    def look(self) -> bool:
        """Return whether the host's journal has the VM, and read the VM's description."""
        self._described = self.ask(MoveStep.LOOK)
        return bool(self._described)

    def check_leaves(self) -> None:
        """Do nothing: leaves() has checked it."""

    def check_comes(self) -> None:
        """Do nothing: comes() has checked it."""

    def send_out(self, seconds: float) -> tuple[Endpoint, ...]:
        """Have the VM's ranks leave the host's region; return their endpoints."""
        return endpoints(self.ask(MoveStep.SEND_OUT, seconds=seconds)["ranks"])

    def close(self) -> None:
        """Close the host's connections to the VM."""
        self.ask(MoveStep.CLOSE)

    def call_back(self) -> None:
        """Let the VM's ranks return to the host's region."""
        self.ask(MoveStep.CALL_BACK)

    def await_back(self, whom: Collection[Endpoint], seconds: float) -> Return:
        """Wait up to `seconds` until these endpoints are in the host's region."""
        told = self.ask(MoveStep.AWAIT_BACK, ranks=list(whom), seconds=seconds)
        return Return(int(told["back"]), int(told["out"]), printable(str(told["why"])))

    def side(self) -> "Side":
        """Return the domain's host, devices and callbacks for libvirt's part of the move."""
        # Imported here and below, so that commands without moves need no libvirt.
        from vicinal.cluster.vm.devices import PciFunction
        from vicinal.cluster.vm.libvirt.side import Side

        address = self.record.address
        return Side(
            libvirt_of(self.record),
            transport=f"tcp://{address}" if address else None,
            region=region_of(self._described),
            pci_functions=tuple(PciFunction(str(each)) for each in self._described["vfs"]),
            announce=lambda: self._do(MoveStep.ANNOUNCE),
            withdraw=lambda: self._do(MoveStep.WITHDRAW),
            names=tuple(self._described["names"]),
        )

    def _do(self, step: MoveStep) -> None:
        self.ask(step)

    def ask(self, step: MoveStep, **values: Any) -> dict[str, Any]:
        """Have the agent execute a step; return its answer. Raises VicinalError."""
        asked = {"host_part": self.record.host_part, "node": self._node, "step": step, **values}
        self._owed += 1
        self._connection.tell(Request.MOVE, asked)
        while True:
            answer = self._connection.hear()
            self._owed -= 1
            if self._owed == 0:
                break
        if "error" in answer:
            raise VicinalError(
                f"host {self.record.host}: {printable(str(answer['error']))}",
                printable(str(answer.get("remedy"))),
            )
        return answer


def move_node(
    name: str, journal: Journal, node: str, host: str, seconds: float, say: Say
) -> "Report":
    """Move a VM of a cluster to another of its hosts; the caller holds the cluster's lock.

    `seconds` is the time limit of each step. Raises VicinalError if the move fails; the VM then
    stays on its host.
    """
    from vicinal.cluster.nodes.vm.migration import move_vm
    from vicinal.cluster.vm.libvirt.migrate import is_whole

    entries = journal.entries()
    records = {record.host: record for record in host_records(entries)}
    source = _source(name, records, node, host)
    known = moves(entries).get(node)
    home = source.host if known is None else known.home
    with _migration_hosts(source, records[host], node) as (here, there):
        leaving = here.leaves()
        move = MoveRecord(node, home, source.host, host, here.domain)
        journal.write(move, Event.BEGUN)
        try:
            there.comes(leaving)
            report = move_vm(here, there, seconds=seconds, say=say)
        except BaseException:
            with suppress(VicinalError):  # the next command repairs what fails here
                here.look()  # raises if the host is lost
                if is_whole(here.domain, here.side()):
                    there.ask(MoveStep.STAYS)
                    _forget(journal, move)
            raise
        there.ask(MoveStep.ARRIVED)
        here.ask(MoveStep.GONE)
        _write_down(journal, records, move)
    return report


def repair_moves(journal: Journal, say: Say = lambda _: None) -> None:
    """Find the VMs whose move was interrupted, and complete or undo the move.

    Raises VicinalError if one of the two hosts does not answer.
    """
    from vicinal.cluster.vm.libvirt.migrate import give, settle

    entries = journal.entries()
    records = {record.host: record for record in host_records(entries)}
    for move in interrupted(entries):
        say(f"the move of {move.node} to {move.host} was interrupted")
        with _migration_hosts(records[move.origin], records[move.host], move.node) as (here, there):
            expected, told = there.look(), here.look()
            if not told:  # the old host has recorded that the VM is gone
                _write_down(journal, records, move)
                continue
            found = settle(move.domain, here.side(), there.side()) if expected else None
            if found is not None and found.hypervisor is there.side().hypervisor:
                give(move.domain, there.side())
                there.ask(MoveStep.ARRIVED)
                here.ask(MoveStep.GONE)
                _write_down(journal, records, move)
                continue
            if found is not None:
                give(move.domain, found)
            here.call_back()
            if expected:
                there.ask(MoveStep.STAYS)
            _forget(journal, move)


def _source(name: str, records: Mapping[str, HostRecord], node: str, host: str) -> HostRecord:
    """Return the VM's present host. Raises VicinalError if the VM cannot move to `host`."""
    if not records:
        raise VicinalError(
            f"{name} is only on this host", "list hosts in its file, and call `vicinal up`"
        )
    source = next((each for each in records.values() if node in each.nodes), None)
    if source is None:
        raise VicinalError(f"the cluster {name} has no node {node!r}", "check `vicinal status`")
    if node not in source.vms:
        raise VicinalError(
            f"{node} cannot move from {source.host}: it is not a virtual machine",
            "end its processes, and give the node another host in the file",
        )
    if host not in records:
        raise VicinalError(
            f"{name} is not on the host {host!r}, but on {', '.join(records)}",
            "choose one of these, or list the host under hosts, with a node, and call `vicinal up`",
        )
    if host == source.host:
        raise VicinalError(f"{node} is already on {host}", "choose another host")
    return source


@contextmanager
def _migration_hosts(
    source: HostRecord, target: HostRecord, node: str
) -> Iterator[tuple[RemoteMigrationHost, RemoteMigrationHost]]:
    """Connect to the agents of both hosts, which lock their parts with the first step."""
    with connected([source.host, target.host]) as [here, there]:
        here.hello()
        there.hello()
        yield RemoteMigrationHost(here, source, node), RemoteMigrationHost(there, target, node)


def _forget(journal: Journal, move: MoveRecord) -> None:
    """Record that the VM did not move, and is on its former host."""
    if move.origin == move.home:
        journal.write(move, Event.REMOVED)
    else:
        journal.write(replace(move, host=move.origin), Event.MADE)


def _write_down(journal: Journal, records: Mapping[str, HostRecord], move: MoveRecord) -> None:
    """Record that the VM has moved."""
    journal.write(records[move.origin].without(move.node), Event.MADE)
    journal.write(records[move.host].having(move.node), Event.MADE)
    journal.write(move, Event.REMOVED if move.host == move.home else Event.MADE)


class MoveSteps:
    """The steps of one VM's move on one host; the part is locked until close()."""

    def __init__(self, host_part: str, node: str) -> None:
        self._host_part = host_part
        self._node = node
        self._lock = ExitStack()
        self._lock.enter_context(sole_command(host_part))
        self._migration_host: LocalMigrationHost | None = None
        self._vf: VfResource | None = None
        """The VF of this host that the VM has or will get."""

    def close(self) -> None:
        """Unlock the part."""
        self._lock.close()

    def do(self, step: MoveStep, values: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a step; return the answer's fields. Raises VicinalError."""
        match step:
            case MoveStep.LEAVES:
                migration_host = self._look()
                _check_movable(migration_host.vm)
                migration_host.check_leaves()
                return _described(migration_host, self._vf)
            case MoveStep.COMES:
                vm = decode(Vm, values["vm"])
                return self._comes(vm, str(values["bridge"]), values.get("vf"))
            case MoveStep.LOOK:
                if find(self._resources(), VmResource, self._node) is None:
                    return {}
                return _described(self._look(), self._vf)
            case MoveStep.SEND_OUT:
                # Incomplete while it moves, so that a job does not count the VM as lost.
                journal_of(self._host_part).write(self._resource(), Event.REMOVING)
                return {"ranks": self._there.send_out(float(values["seconds"]))}
            case MoveStep.AWAIT_BACK:
                whom = endpoints(values["ranks"])
                return asdict(self._there.await_back(whom, float(values["seconds"])))
            case MoveStep.CLOSE:
                self._there.close()
            case MoveStep.WITHDRAW:
                self._its_vf.withdraw()
            case MoveStep.ANNOUNCE:
                self._its_vf.announce()
            case MoveStep.CALL_BACK:
                self._there.call_back()
                journal_of(self._host_part).write(self._resource(), Event.MADE)
            case MoveStep.GONE:
                self._gone()
            case MoveStep.STAYS:
                if self._migration_host is not None:
                    journal_of(self._host_part).write(self._resource(), Event.REMOVED)
                    self._release()
            case MoveStep.ARRIVED:
                self._arrived()
        return {}

    @property
    def _there(self) -> LocalMigrationHost:
        if self._migration_host is None:
            raise VicinalError(
                f"{self._node} is not being moved",
                "call `vicinal migrate`, which prepares the move",
            )
        return self._migration_host

    @property
    def _its_vf(self) -> VfResource:
        if self._vf is None:
            raise VicinalError(
                f"{self._node} has no VF on this host",
                "call `vicinal migrate`, which reserves one",
            )
        return self._vf

    def _look(self) -> LocalMigrationHost:
        """Read the VM and its VF from the journal."""
        migration_host = self._migration_host = LocalMigrationHost(self._vm())
        self._vf = find(self._resources(), VfResource, self._node)
        return migration_host

    def _release(self) -> None:
        """Release the VF that the VM had on this host, or was to get."""
        if self._vf is None:
            return
        journal = journal_of(self._host_part)
        journal.write(self._vf, Event.REMOVING)
        self._vf.remove()
        journal.write(self._vf, Event.REMOVED)

    def _resource(self) -> VmResource:
        return VmResource(self._there.vm)

    def _resources(self) -> dict[str, Resource]:
        return recorded_resources(journal_of(self._host_part).entries())

    def _vm(self) -> Vm:
        found = find(self._resources(), VmResource, self._node)
        if found is None:
            raise VicinalError(
                f"there is no virtual machine {self._node!r}", "check `vicinal status`"
            )
        return found.vm

    def _comes(self, vm: Vm, bridge: str, vf: Mapping[str, Json] | None) -> dict[str, Any]:
        """Prepare the VM's arrival; `vm` and `vf` are those of its present host."""
        if vm.owner.partition("-")[0] != str(os.geteuid()):
            raise VicinalError(
                f"{vm.name} belongs to the user {vm.owner.partition('-')[0]}, and the "
                f"agent on this host runs as the user {os.geteuid()}",
                "use the same user number on all hosts",
            )
        resources = self._resources()
        if find(resources, VmResource, self._node) is not None:
            raise VicinalError(
                f"it already has a virtual machine {self._node}", "check `vicinal status`"
            )
        common, region = find(resources, VmsResource), find(resources, RegionResource)
        if common is None:
            raise VicinalError(
                "it has no virtual machines of the cluster",
                "choose a host with virtual machines in the file, and call `vicinal up`",
            )
        own = common.at_this_host(vm, bridge)
        if own.region is not None:
            if region is None:
                raise VicinalError("it has no region of the cluster", "call `vicinal up`")
            own = replace(own, region=region.path.name)
        migration_host = LocalMigrationHost(own)
        migration_host.check_comes()
        wanted = None
        if vf is not None:
            check_may_give_away(own.name, own.uri)
            wanted = VfResource.from_settings(vf).at_this_host()
        write_commands(own, first=False)
        self._migration_host, self._vf = migration_host, wanted
        journal = journal_of(self._host_part)
        # The VM first, because a command that finds its record looks for its VF too.
        journal.write(self._resource(), Event.BEGUN)
        if wanted is not None:
            journal.write(wanted, Event.BEGUN)
            wanted.reserve()
        return _described(migration_host, wanted)

    def _gone(self) -> None:
        journal = journal_of(self._host_part)
        self._release()
        self._there.vm.saved.unlink(missing_ok=True)
        journal.write(self._resource(), Event.REMOVED)
        self._write_guests(without=self._node)

    def _arrived(self) -> None:
        journal = journal_of(self._host_part)
        if self._vf is not None:
            journal.write(self._vf, Event.MADE)
        journal.write(self._resource(), Event.MADE)
        # The console begins after the boot, so that this mark must say that the VM has booted.
        self._there.vm.saved.touch()
        self._write_guests(without=None)

    def _write_guests(self, without: str | None) -> None:
        """Record the guests to wait for when VMs start: those of the VMs on this host."""
        journal, resources = journal_of(self._host_part), self._resources()
        vms = tuple(each.vm for each in all_of(resources, VmResource) if each.vm.name != without)
        ordered = tuple(sorted(vms, key=lambda each: each.number))
        there = find(resources, GuestsResource)
        if ordered:
            journal.write(GuestsResource(ordered), Event.MADE)
        elif there is not None:
            journal.write(there, Event.REMOVED)


def _check_movable(vm: Vm) -> None:
    """Raise VicinalError if a VM depends on this host, and so cannot move."""
    if vm.bridge is None or vm.bridge_is_ours:
        raise VicinalError(
            f"{vm.name} cannot move: it reaches other hosts by UDP wires, which do not move",
            "name a bridge of each host under hosts, all in one network",
        )
    if vm.link is not None:
        raise VicinalError(
            f"{vm.name} cannot move: it has a card in a network of this host beside its own",
            "remove its network key, or set it to default",
        )
    if vm.processors:
        raise VicinalError(
            f"{vm.name} cannot move: the placement pins it to processors of this host",
            "set placement.policy to none",
        )


def _described(migration_host: LocalMigrationHost, vf: VfResource | None) -> dict[str, Any]:
    side = migration_host.side()
    region = side.region
    address = None if vf is None else vf.address
    return {
        "vm": encode(migration_host.vm),
        "domain": migration_host.domain,
        "accelerator": migration_host.accelerator.value,
        "region": None if region is None else [region.name, region.size_bytes],
        "names": list(side.names),
        "vf": None if vf is None else dict(vf.settings),
        "vfs": [] if address is None else [address],
    }


def endpoints(told: Iterable[Any]) -> tuple[Endpoint, ...]:
    """Return the endpoints in a message, as (process, endpoint)."""
    return tuple((int(process), int(endpoint)) for process, endpoint in told)


def region_of(described: Mapping[str, Any]) -> SharedRegion | None:
    """Return the region in a VM's description; None without one."""
    found = described["region"]
    return None if found is None else SharedRegion(str(found[0]), int(found[1]))
