"""Moving a machine of a cluster from one of its hosts to another, and repairing what was begun.

The command asks the agents of both hosts for their steps, and has libvirt move the machine. What
it is about to do is in the cluster's journal, and what each host has in that host's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vicinal.base.errors import VicinalError
from vicinal.base.printable import printable
from vicinal.cluster.hosts.connection import ShareConnection
from vicinal.cluster.hosts.far_libvirt import libvirt_of
from vicinal.cluster.hosts.move_steps import MoveStep, endpoints, region_of
from vicinal.cluster.hosts.moves import MoveRecord, interrupted, moves
from vicinal.cluster.hosts.protocol import Request
from vicinal.cluster.hosts.record import HostRecord, host_records
from vicinal.cluster.hosts.shares import connected
from vicinal.cluster.nodes.vm.ranks import Endpoint, Return
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.vm.accelerator import Accelerator

if TYPE_CHECKING:
    from vicinal.cluster.nodes.vm.migration import Report
    from vicinal.cluster.vm.libvirt.side import Side

Say = Callable[[str], None]


class FarPart:
    """A host's part in the move of a machine, done by the agent there."""

    def __init__(self, connection: ShareConnection, record: HostRecord, node: str) -> None:
        self.record = record
        self._connection = connection
        self._node = node
        self._described: dict[str, Any] = {}
        self._owed = 0
        """Answers that have not come: of questions that were interrupted, too."""

    @property
    def domain(self) -> str:
        """The machine's name in libvirt."""
        return str(self._described["domain"])

    @property
    def accelerator(self) -> Accelerator:
        """What executes machines there."""
        return Accelerator(self._described["accelerator"])

    def leaves(self) -> dict[str, Any]:
        """See that it can leave; returns what it is there, and what its function is."""
        self._described = self.ask(MoveStep.LEAVES)
        return {each: self._described[each] for each in ("machine", "function")}

    def comes(self, what: Mapping[str, Any]) -> None:
        """See that it can come, and expect it; `what` is what it is where it comes from."""
        self._described = self.ask(MoveStep.COMES, bridge=self.record.bridge, **what)

    def look(self) -> bool:
        """Whether that host's journal has it, wherever it is; what it is there is known then."""
        self._described = self.ask(MoveStep.LOOK)
        return bool(self._described)

    def check_leaves(self) -> None:
        """It was seen by leaves()."""

    def check_comes(self) -> None:
        """It was seen by comes()."""

    def send_out(self, seconds: float) -> tuple[Endpoint, ...]:
        """Have its ranks leave the region there."""
        return endpoints(self.ask(MoveStep.SEND_OUT, seconds=seconds)["ranks"])

    def close(self) -> None:
        """End that host's connections to it."""
        self.ask(MoveStep.CLOSE)

    def call_back(self) -> None:
        """Let its ranks come back to the region there."""
        self.ask(MoveStep.CALL_BACK)

    def await_back(self, whom: Collection[Endpoint], seconds: float) -> Return:
        """Wait until they are in it."""
        told = self.ask(MoveStep.AWAIT_BACK, ranks=list(whom), seconds=seconds)
        return Return(int(told["back"]), int(told["out"]), printable(str(told["why"])))

    def side(self) -> "Side":
        """What its domain has there."""
        # Loaded here, as below: whoever moves no machines needs no libvirt.
        from vicinal.cluster.vm.libvirt.domain_spec import HostFunction
        from vicinal.cluster.vm.libvirt.side import Side

        address = self.record.address
        return Side(
            libvirt_of(self.record),
            transport=f"tcp://{address}" if address else None,
            region=region_of(self._described),
            functions=tuple(HostFunction(str(each)) for each in self._described["functions"]),
            announce=lambda: self._do(MoveStep.ANNOUNCE),
            withdraw=lambda: self._do(MoveStep.WITHDRAW),
            names=tuple(self._described["names"]),
        )

    def _do(self, step: MoveStep) -> None:
        self.ask(step)

    def ask(self, step: MoveStep, **values: Any) -> dict[str, Any]:
        """Have the agent do a step. Raises VicinalError."""
        asked = {"share": self.record.share, "node": self._node, "step": step, **values}
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
    """Move a machine of a cluster, whose lock is held, to another of its hosts.

    Raises VicinalError, with all as before, where that cannot be.
    """
    from vicinal.cluster.nodes.vm.migration import move_machine
    from vicinal.cluster.vm.libvirt.migrate import is_whole

    entries = journal.entries()
    records = {record.host: record for record in host_records(entries)}
    source = _source(name, records, node, host)
    known = moves(entries).get(node)
    home = source.host if known is None else known.home
    with _parts(source, records[host], node) as (here, there):
        leaving = here.leaves()
        move = MoveRecord(node, home, source.host, host, here.domain)
        journal.write(move, Event.BEGUN)
        try:
            there.comes(leaving)
            report = move_machine(here, there, seconds=seconds, say=say)
        except BaseException:
            with suppress(VicinalError):  # the next command repairs what this one cannot
                here.look()  # whether that host is still there
                if is_whole(here.domain, here.side()):
                    there.ask(MoveStep.STAYS)
                    _forget(journal, move)
            raise
        there.ask(MoveStep.ARRIVED)
        here.ask(MoveStep.GONE)
        _write_down(journal, records, move)
    return report


def repair_moves(journal: Journal, say: Say = lambda _: None) -> None:
    """Find out where machines are whose move was interrupted, and make them whole there.

    Raises VicinalError where one of the two hosts cannot be asked.
    """
    from vicinal.cluster.vm.libvirt.migrate import give, settle

    entries = journal.entries()
    records = {record.host: record for record in host_records(entries)}
    for move in interrupted(entries):
        say(f"the move of {move.node} to {move.host} was interrupted")
        with _parts(records[move.origin], records[move.host], move.node) as (here, there):
            expected, told = there.look(), here.look()
            if not told:  # that it is gone
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
    """The host that a machine is on. Raises VicinalError for what is not to be moved there."""
    if not records:
        raise VicinalError(
            f"{name} is on this host alone", "name hosts in its file, and call `vicinal up`"
        )
    source = next((each for each in records.values() if node in each.nodes), None)
    if source is None:
        raise VicinalError(f"the cluster {name} has no {node}", "see `vicinal status`")
    if node not in source.machines:
        raise VicinalError(
            f"{node} is no virtual machine: what runs in it is of {source.host} alone",
            "end what runs in it, and give the node another host in the file",
        )
    if host not in records:
        raise VicinalError(
            f"{name} is not on the host {host}, but on {', '.join(records)}",
            "choose one of these, or name it under hosts, with a node, and call `vicinal up`",
        )
    if host == source.host:
        raise VicinalError(f"{node} is on {host} already", "choose another host")
    return source


@contextmanager
def _parts(source: HostRecord, target: HostRecord, node: str) -> Iterator[tuple[FarPart, FarPart]]:
    """Both hosts' agents, which keep others from their shares."""
    with connected([source.host, target.host]) as [here, there]:
        here.hello()
        there.hello()
        yield FarPart(here, source, node), FarPart(there, target, node)


def _forget(journal: Journal, move: MoveRecord) -> None:
    """It did not move: it is where it was before."""
    if move.origin == move.home:
        journal.write(move, Event.REMOVED)
    else:
        journal.write(replace(move, host=move.origin), Event.MADE)


def _write_down(journal: Journal, records: Mapping[str, HostRecord], move: MoveRecord) -> None:
    """It has moved."""
    journal.write(records[move.origin].without(move.node), Event.MADE)
    journal.write(records[move.host].having(move.node), Event.MADE)
    journal.write(move, Event.REMOVED if move.host == move.home else Event.MADE)
