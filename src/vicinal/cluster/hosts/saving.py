"""Saving the machines of a cluster on all its hosts at once, and letting them go on.

The command asks each host's agent for the same step, and for the next one when all have done it.
So a machine's peers on other hosts stand still for as long as it does: what is between them on the
network when they begin to is lost there, and sent again by their TCP, whose clocks stand still too,
when they go on. Nowhere is a machine saved while another runs. Saving is all or nothing. Machines
that come back stand still until all have, also where that takes another command. An agent that
hears no more of the command before KEEP lets its machines go on by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from threading import Lock
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.printable import printable
from vicinal.cluster.hosts.connection import (
    Listener,
    Outcomes,
    Request,
    ShareConnection,
    ask_all,
    connected,
)
from vicinal.cluster.hosts.record import (
    HostRecord,
    SaveRecord,
    host_records,
    is_half_saved,
    is_saved,
)
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.saving import Saving
from vicinal.cluster.plan.applying import Show
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Action, Step
from vicinal.cluster.plan.resource import Resource, all_of, find
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.all_machines import running_machines
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.machines import MachineResource

Say = Callable[[str], None]


class SaveStep(StrEnum):
    """What a host is asked for."""

    CHECK = "check"
    """See that those that run can be saved; how many these are."""
    DISCONNECT = "disconnect"
    """End this host's connections to them."""
    STAND_STILL = "stand still"
    SAVE = "save"
    """They stand still on all hosts: keep them, and end them."""
    KEEP = "keep"
    """They are saved on all hosts, and stay so when the command ends."""
    LOOK = "look"
    """See that there is room for those that are saved; how many run, and how many do not."""
    BRING_BACK = "bring back"
    """Have those that are saved stand still again."""
    GO_ON = "go on"
    """They are back on all hosts: let all go on that stand still."""
    HOLD = "hold"
    """Some host's do not go on: let them stand still here too, until another command."""
    ENTER = "enter"
    """They went on: get into them."""


class HostSaysError(VicinalError):
    """A host answers that it cannot do a step; other errors are of hosts that do not answer."""

    def __init__(self, host: str, answer: Mapping[str, Any]) -> None:
        super().__init__(
            f"host {host}: {printable(str(answer['error']))}", printable(str(answer.get("remedy")))
        )


class SavedShares:
    """The shares of a cluster's hosts, each asked for one step at a time."""

    def __init__(
        self, connections: Sequence[ShareConnection], records: Sequence[HostRecord]
    ) -> None:
        self._connections = connections
        self._shares = {record.host: record.share for record in records}
        self._asked = {record.host: Lock() for record in records}

    def all(self, step: SaveStep, show: Show = lambda _: None) -> dict[str, dict[str, Any]]:
        """Have all hosts do a step; their answers. Raises the first error when all have ended."""
        return self.each(step, show).all()

    def each(self, step: SaveStep, show: Show = lambda _: None) -> Outcomes[dict[str, Any]]:
        """Have all hosts do a step, and wait for all; their answers and errors."""

        def ask(connection: ShareConnection, listener: Listener) -> dict[str, Any]:
            asked = {"share": self._shares[connection.name], "step": step}
            # A question that was interrupted is answered first.
            with self._asked[connection.name]:
                answer = connection.ask_openly(Request.SAVE, asked, listener)
            if "error" in answer:
                raise HostSaysError(connection.name, answer)
            return answer

        return ask_all(self._connections, ask, show)


def save_over_hosts(name: str, journal: Journal, say: Say = lambda _: None) -> None:
    """Save the machines on all hosts of a cluster, whose lock is held.

    Raises VicinalError where that cannot be; all machines then run on. If one does not come back,
    all stand still, and if a host is lost it lets its own go on: the next command repairs that.
    """
    repair_save(journal, say=say)
    with _shares(journal) as shares:
        if is_saved(journal.entries()) and _running(shares):
            # Somebody let some of them go on, without the command's host.
            _let_go_on(shares, journal)
        running = shares.all(SaveStep.CHECK)
        if not any(told["running"] for told in running.values()):
            raise VicinalError(f"no virtual machine of {name} runs", "see `vicinal status`")
        journal.write(SaveRecord(), Event.BEGUN)
        try:
            shares.all(SaveStep.DISCONNECT)
            shares.all(SaveStep.STAND_STILL)
            shares.all(SaveStep.SAVE)
            shares.all(SaveStep.KEEP)
            journal.write(SaveRecord(), Event.MADE)
        except BaseException as error:
            why = _undo(shares, journal)
            if isinstance(error, VicinalError) and why:
                raise VicinalError(
                    f"{error.message}; {why}", f"{error.remedy}; then `vicinal start {name}`"
                ) from error
            raise


def restore_over_hosts(name: str, journal: Journal, show: Show = lambda _: None) -> None:
    """Let the machines on all hosts of a cluster go on, which were saved, wholly or by half.

    Nothing is to be done where they were not. Raises VicinalError where they do not go on; nothing
    is lost then: those that came back stand still, until a command lets all go on.
    """
    if not is_saved(journal.entries()) and not is_half_saved(journal.entries()):
        return
    with _shares(journal) as shares:
        try:
            _let_go_on(shares, journal, show)
        except VicinalError as error:
            raise VicinalError(
                f"{error.message}; no machine of {name} goes on before all do",
                f"{error.remedy}; then call `vicinal restore {name}` again",
            ) from error
        shares.all(SaveStep.ENTER)


def repair_save(journal: Journal, show: Show = lambda _: None, say: Say = lambda _: None) -> None:
    """Let all machines go on where a command was interrupted at saving them. Raises VicinalError
    where that cannot be."""
    if is_half_saved(journal.entries()):
        say("a command was interrupted while the machines were saved, or restored")
        with _shares(journal) as shares:
            _let_go_on(shares, journal, show)


def _let_go_on(shares: SavedShares, journal: Journal, show: Show = lambda _: None) -> None:
    shares.all(SaveStep.LOOK)
    journal.write(SaveRecord(), Event.BEGUN)
    shares.all(SaveStep.BRING_BACK, show)
    outcomes = shares.each(SaveStep.GO_ON)
    if outcomes.errors:
        # Its peers would give a machine up that stands still for long.
        shares.each(SaveStep.HOLD)
    outcomes.all()
    journal.write(SaveRecord(), Event.REMOVED)


def _undo(shares: SavedShares, journal: Journal) -> str:
    """Let all machines go on, as far as their hosts can be asked; why not all of them do."""
    back = shares.each(SaveStep.BRING_BACK).errors
    stuck = [error for error in back.values() if isinstance(error, HostSaysError)]
    if stuck:
        # Those that it has would not be what they were to peers that go on without them.
        shares.each(SaveStep.HOLD)
        return f"{stuck[0].message}; no machine goes on before all do"
    lost = {**back, **shares.each(SaveStep.GO_ON).errors}
    if lost:
        return f"whether the machines of {', '.join(lost)} go on is not known"
    journal.write(SaveRecord(), Event.REMOVED)
    return ""


def _running(shares: SavedShares) -> int:
    return sum(int(told["running"]) for told in shares.all(SaveStep.LOOK).values())


@contextmanager
def _shares(journal: Journal) -> Iterator[SavedShares]:
    """The agents of all hosts, which keep others from their shares once they are asked."""
    records = host_records(journal.entries())
    with connected([record.host for record in records]) as connections:
        ask_all(connections, lambda each, _: each.hello()).all()
        yield SavedShares(connections, records)


class SaveSteps:
    """The steps on one host; other commands wait until close()."""

    def __init__(self, share: str, show: Show) -> None:
        self._share = share
        self._show = show
        self._lock = ExitStack()
        self._lock.enter_context(sole_command(share))
        self._saving = Saving(())
        self._undo = False
        """Whether they go on when no more is heard of the command."""

    def close(self) -> None:
        """Undo what nobody said is to be kept, and let other commands work on the share."""
        try:
            if self._undo:
                # Nobody hears of it. What does not go on now does so by the next command.
                with suppress(VicinalError):
                    self._saving.undo()
        finally:
            self._lock.close()

    def do(self, step: SaveStep) -> dict[str, Any]:
        """Do one; returns what the command has to know. Raises VicinalError."""
        match step:
            case SaveStep.CHECK:
                self._saving = Saving(running_machines(self._share, self._resources()))
                self._saving.check()
                return {"running": len(self._saving.machines)}
            case SaveStep.DISCONNECT:
                self._saving.disconnect()
            case SaveStep.STAND_STILL:
                self._undo = True
                self._saving.stand_still()
            case SaveStep.SAVE:
                self._saving.save()
            case SaveStep.KEEP:
                self._undo = False
            case SaveStep.LOOK:
                return self._look()
            case SaveStep.BRING_BACK:
                self._saving.bring_back(self._show_start)
            case SaveStep.GO_ON:
                self._saving.go_on()
                self._undo = False
            case SaveStep.HOLD:
                self._undo = False
                self._saving.stand_still()
            case SaveStep.ENTER:
                guests = find(self._resources(), GuestsResource)
                if guests is not None and self._saving.all_run:
                    guests.start()
        return {}

    def _look(self) -> dict[str, Any]:
        found = all_of(self._resources(), MachineResource)
        self._saving = Saving([each.machine for each in found])
        self._saving.check_room()
        states = ("running", "paused", "saved")
        return {state: self._saving.count(state) for state in states}

    def _show_start(self, machine: Machine) -> None:
        self._show(Step(Action.START, MachineResource(machine), "it is saved"))

    def _resources(self) -> dict[str, Resource]:
        return recorded_resources(journal_of(self._share).entries())
