"""Creating a cluster over several hosts: on all hosts at the same time, and all or nothing.

Each host plans and creates its own part. After all parts are created, the command has all kept.
If a host fails or the command is interrupted, all hosts undo what they created.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import AddressValueError, IPv4Address
from queue import Empty, Queue
from threading import Thread
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.cluster.hosts.connection import (
    UNDO_SECONDS,
    FarStep,
    HostPartConnection,
    Listener,
    Request,
    ask_all,
    connected,
)
from vicinal.cluster.hosts.host_part import Whole, hosts_with_vms
from vicinal.cluster.hosts.moving import repair_moves
from vicinal.cluster.hosts.record import (
    SAVE_KEY,
    HostRecord,
    host_records,
    interrupted,
    is_half_saved,
    on_this_host,
    present_hosts,
    with_moves,
)
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.hosts.saving import restore_over_hosts
from vicinal.cluster.nodes.vm.from_file import is_joined
from vicinal.cluster.plan.applying import Show, apply
from vicinal.cluster.plan.journal import Entry, Event, Journal
from vicinal.cluster.plan.planning import Action, Plan, Shown, make_plan
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.keys import KeysResource

Say = Callable[[str], None]

_LOOK_SECONDS = 0.1


def plan_over_hosts(cluster: Cluster) -> Sequence[Shown]:
    """Return the steps of `up` on all hosts. Changes nothing. Raises VicinalError."""
    entries = journal_of(cluster.name).entries()
    with connected(_hosts(cluster, entries)) as connections:
        found = _Making(cluster, entries, connections).steps()
    lost = [
        FarStep(move.host, Action.REMOVE, move.key, "a command was interrupted during the move")
        for move in interrupted(entries)
    ]
    if is_half_saved(entries):
        why = "a command was interrupted while it saved or restored the virtual machines"
        lost += [FarStep(each.host, Action.START, SAVE_KEY, why) for each in host_records(entries)]
    return [*lost, *found]


def up_over_hosts(cluster: Cluster, show: Show, say: Say) -> Sequence[Shown]:
    """Create the missing parts of a cluster on all hosts; return the executed steps.

    Raises VicinalError after what was created is undone; the error names the hosts on which parts
    may be left.
    """
    with sole_command(cluster.name):
        journal = journal_of(cluster.name)
        repair_moves(journal, say)
        entries = journal.entries()
        with connected(_hosts(cluster, entries)) as connections:
            making = _Making(cluster, entries, connections)
            steps = making.steps()
            restore_over_hosts(cluster.name, journal, show)
            apply(making.local, journal, show, lambda: making.make(journal, show, say))
            return steps


def _hosts(cluster: Cluster, entries: dict[str, Entry]) -> list[str]:
    """Return the hosts of the file, and recorded hosts that the file no longer names."""
    recorded = [record.host for record in host_records(entries)]
    return list(dict.fromkeys([*(host.name for host in cluster.hosts), *recorded]))


class _Making:
    """The work of one command on a cluster, with an agent on each host."""

    def __init__(
        self, cluster: Cluster, entries: dict[str, Entry], connections: Sequence[HostPartConnection]
    ) -> None:
        self._moved = present_hosts(cluster, entries)
        self._cluster = cluster = with_moves(cluster, self._moved)
        self._recorded = {record.host: record for record in host_records(entries)}
        _check_only_keys(cluster, entries)
        self._entries = entries
        self._connections = {each.name: each for each in connections}
        facts = ask_all(connections, lambda each, _: each.hello()).all()
        self._addresses = _addresses(cluster, facts)
        self._records = [self._record(host.name, facts[host.name]) for host in cluster.hosts]
        self._keys = KeysResource.of(cluster.name) if cluster.of(BackEnd.VM) else None
        self._changes: dict[str, bool] = {}
        """Whether a host's part has steps to execute, by host; set by steps()."""
        self.local = self._local_plan()

    def steps(self) -> list[Shown]:
        """Return the steps of all hosts, including what is kept. Raises VicinalError."""
        asked = [self._connections[record.host] for record in self._records]
        plans = ask_all(asked, lambda each, _: self._planned(each)).all()
        found: list[Shown] = [
            FarStep(
                record.host,
                Action.REMOVE,
                "its part of the cluster",
                "the file no longer names the host",
            )
            for record in self._gone
        ]
        found += self.local.steps
        for record in self._records:
            steps = plans[record.host]
            self._changes[record.host] = any(step.action is not Action.KEEP for step in steps)
            found += steps
        return found

    def make(self, journal: Journal, show: Show, say: Say) -> None:
        """Execute the hosts' steps at the same time. Raises VicinalError after all is undone."""
        for record in self._gone:
            journal.write(record, Event.REMOVING)
            self._connections[record.host].ask(
                Request.DOWN, {"host_part": record.host_part}, Listener(show, say)
            )
            journal.write(record, Event.REMOVED)
        whole = self._whole()
        work = []
        for record in self._records:
            entry = self._entries.get(record.key)
            known = entry is not None and entry.whole and entry.settings == record.settings
            if known and not self._changes[record.host]:
                continue
            journal.write(record, Event.BEGUN)
            work.append((record, whole.request(record.host, with_keys=True)))
        parts = PartCreations(
            [PartCreation(self._connections[r.host], request) for r, request in work], show, say
        )
        try:
            parts.make()
        except BaseException as error:
            records = [record for record, _ in work]
            left = self._take_away(records, parts.undo())
            self._forget(journal, records, left)
            if isinstance(error, VicinalError) and left:
                raise VicinalError(
                    f"{error.message}; parts of the cluster may be left on {', '.join(left)}",
                    f"{error.remedy}; then remove them with `vicinal down {self._cluster.name}`",
                ) from error
            raise
        for record, _ in work:
            journal.write(record, Event.MADE)

    def _take_away(self, records: Sequence[HostRecord], left: Sequence[str]) -> list[str]:
        """Remove new parts in `left`, whose agents could not undo them.

        Return the hosts on which that fails too, or whose part is older than this command.
        """
        still = []
        for record in records:
            if record.host not in left:
                continue
            try:
                if record.host in self._recorded:
                    raise VicinalError(
                        "the host's part of the cluster existed before", "repair the part"
                    )
                with connected([record.host]) as [connection]:
                    connection.hello()
                    connection.ask(Request.DOWN, {"host_part": record.host_part})
            except VicinalError:
                still.append(record.host)
        return still

    def _forget(self, journal: Journal, records: Sequence[HostRecord], left: Sequence[str]) -> None:
        """Record that undone parts are gone, or complete as before this command."""
        for record in records:
            if record.host in left:
                continue
            before = self._recorded.get(record.host)
            if before is None:
                journal.write(record, Event.REMOVED)
            elif self._entries[record.key].whole:
                journal.write(before, Event.MADE)

    @property
    def _gone(self) -> list[HostRecord]:
        named = {host.name for host in self._cluster.hosts}
        return [record for host, record in self._recorded.items() if host not in named]

    def _planned(self, connection: HostPartConnection) -> list[FarStep]:
        request = self._whole().request(connection.name, with_keys=False)
        answer = connection.ask(Request.PLAN, request)
        try:
            return [FarStep.heard(connection.name, step) for step in answer["steps"]]
        except (KeyError, ValueError, TypeError) as error:
            raise VicinalError(
                f"host {connection.name}: its agent's answer is not a plan",
                "check which Vicinal is installed there",
            ) from error

    def _whole(self) -> Whole:
        keys = None if self._keys is None else self._keys.texts()
        return Whole(self._cluster, self._addresses, keys, self._moved)

    def _local_plan(self) -> Plan:
        wanted: list[Resource] = [] if self._keys is None else [self._keys]
        recorded = on_this_host(self._entries)
        there = {key: KeysResource.from_settings(each.settings) for key, each in recorded.items()}
        return make_plan(wanted, recorded, there)

    def _record(self, host: str, facts: dict[str, Any]) -> HostRecord:
        nodes = [node for node in self._cluster.nodes if node.host == host]
        vms = [node for node in nodes if node.backend is BackEnd.VM]
        given = next(each for each in self._cluster.hosts if each.name == host)
        hypervisor = given.hypervisor or self._cluster.hypervisor or str(facts["hypervisor"])
        return HostRecord(
            cluster=self._cluster.name,
            host=host,
            nodes=tuple(node.name for node in nodes),
            vms=tuple(node.name for node in vms),
            alone=tuple(node.name for node in vms if not is_joined(node)),
            address=self._addresses.get(host, ""),
            hypervisor=hypervisor,
            bridge=given.bridge or "",
            containers=tuple(node.name for node in nodes if node.backend is BackEnd.CONTAINER),
        )


def _check_only_keys(cluster: Cluster, entries: dict[str, Entry]) -> None:
    """Raise VicinalError if a cluster without hosts exists here, and the file now names hosts."""
    others = [key for key in on_this_host(entries) if not key.startswith(f"{KeysResource.KIND}/")]
    if others:
        raise VicinalError(
            f"the cluster {cluster.name} is only on this host, and the file names hosts for it",
            f"call `vicinal down {cluster.name}` first",
        )


def _addresses(cluster: Cluster, facts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the IPv4 address of each host with VMs, by which the other hosts reach it.

    Empty if fewer than two hosts have VMs. Raises VicinalError for an unknown address, and for two
    hosts with the same address.
    """
    hosts = hosts_with_vms(cluster)
    if len(hosts) < 2:
        return {}
    found: dict[str, str] = {}
    for host in cluster.hosts:
        if host.name not in hosts:
            continue
        address = host.address or _seen_address(host.name, facts)
        if not _is_ipv4(address):
            raise VicinalError(
                f"the address by which other hosts reach {host.name} is unknown",
                "set the host's address in the file, an IPv4 address",
            )
        for other, known in found.items():
            if known == address:
                raise VicinalError(
                    f"{other} and {host.name} both have the address {address}: they are one host",
                    "list it once, or set the addresses by which the hosts reach each other",
                )
        found[host.name] = address
    return found


def _seen_address(name: str, facts: dict[str, dict[str, Any]]) -> str:
    """Return the address to which ssh connected, or for this host the address it came from.

    Empty if ssh was not used.
    """
    if not Host(name).is_this:
        return str(facts[name]["address"])
    others = [
        str(each["command_address"]) for host, each in facts.items() if not Host(host).is_this
    ]
    return next(filter(None, others), "")


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


class PartCreation(Thread):
    """The creation of one host's part, until the part is kept or undone."""

    def __init__(self, connection: HostPartConnection, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.made = False
        self.ended = False
        self.clean = False
        """Whether nothing is left of an undone part."""
        self.error: VicinalError | None = None
        self._request = request
        self._verdict: Queue[Request] = Queue()
        self.listener = Listener()
        self.tell: Callable[[], None] = lambda: None

    def run(self) -> None:
        """Request the part, and wait for settle()."""
        try:
            answer = self.connection.ask_openly(Request.UP, self._request, self.listener)
            if "made" in answer:
                self.made = True
                self.tell()
                answer = self.connection.ask_openly(self._verdict.get(), None, self.listener)
            if "error" in answer:
                self.error = VicinalError(
                    f"host {self.connection.name}: {answer['error']}", str(answer.get("remedy"))
                )
            self.clean = answer.get("left") == []
        except VicinalError as error:
            self.error = error
        finally:
            self.ended = True
            self.tell()

    def settle(self, verdict: Request) -> None:
        """Keep the part, or undo it during or after its creation."""
        if verdict is Request.UNDO and not self.made:
            self.connection.tell(verdict)
        self._verdict.put(verdict)


class PartCreations:
    """The creation of several parts at the same time."""

    def __init__(self, parts: Sequence[PartCreation], show: Show, say: Say) -> None:
        self._parts = parts
        self._heard: Queue[Callable[[], object]] = Queue()
        for part in parts:
            part.tell = lambda: self._heard.put(lambda: None)
            part.listener = Listener(
                lambda step: self._heard.put(lambda: show(step)),
                lambda text: self._heard.put(lambda: say(text)),
            )

    def make(self) -> None:
        """Create all parts, and then keep all. Raises the first error."""
        for part in self._parts:
            part.start()
        while not all(part.made for part in self._parts):
            self._heard.get()()
            self._raise_error()
        for part in self._parts:
            part.settle(Request.KEEP)
        while not all(part.ended for part in self._parts):
            self._heard.get()()
        self._raise_error()

    def undo(self) -> list[str]:
        """Undo all parts that are not undone yet; return the hosts on which parts may be left."""
        for part in self._parts:
            if part.is_alive():
                part.settle(Request.UNDO)
        deadline = time.monotonic() + UNDO_SECONDS
        while any(part.is_alive() for part in self._parts) and time.monotonic() < deadline:
            with suppress(Empty):
                self._heard.get(timeout=_LOOK_SECONDS)()
        return [part.connection.name for part in self._parts if part.ident and not part.clean]

    def _raise_error(self) -> None:
        for part in self._parts:
            if part.ended and part.error is not None:
                raise part.error
