"""Saving and restoring the VMs of a cluster on all its hosts at once.

The command requests each step from the agents of all hosts, and the next step after all have
finished. So a VM's peers on other hosts are paused as long as the VM is. Packets in the network at
the moment of the pause are lost. The guests' TCP, whose clocks are paused too, sends them again
after the resumption. No VM is saved while another VM of the cluster runs.

Saving is all or nothing. Restored VMs stay paused until all are restored, even if that takes
another command. If an agent loses the command before KEEP, the agent resumes its VMs by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from threading import Lock
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.printable import printable
from vicinal.cluster.hosts.connection import (
    HostPartConnection,
    Listener,
    Outcomes,
    Request,
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
from vicinal.cluster.nodes.vm.saving import Saving
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.applying import Show
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Action, Step
from vicinal.cluster.plan.resource import Resource, all_of, find
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.all_vms import running_vms
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.vms import VmResource

Say = Callable[[str], None]


class SaveStep(StrEnum):
    """A step that a host executes on its VMs."""

    CHECK = "check"
    """Check that the running VMs can be saved; return their number."""
    DISCONNECT = "disconnect"
    """Close this host's connections to the VMs."""
    STAND_STILL = "stand still"
    """Pause the running VMs."""
    SAVE = "save"
    """Save and end the VMs. The VMs of all hosts are paused."""
    KEEP = "keep"
    """Leave the VMs saved after the command's end. The VMs of all hosts are saved."""
    LOOK = "look"
    """Check the memory for saved VMs; return the numbers of running, paused and saved VMs."""
    BRING_BACK = "bring back"
    """Restore saved VMs, paused."""
    GO_ON = "go on"
    """Resume paused VMs. The VMs of all hosts are restored."""
    HOLD = "hold"
    """Pause the VMs until another command, because the VMs of another host do not go on."""
    ENTER = "enter"
    """Connect to the resumed VMs."""


class HostSaysError(VicinalError):
    """A host's answer that a step failed. Other VicinalErrors mean that a host does not answer."""

    def __init__(self, host: str, answer: Mapping[str, Any]) -> None:
        super().__init__(
            f"host {host}: {printable(str(answer['error']))}", printable(str(answer.get("remedy")))
        )


class SavedHostParts:
    """The agents of a cluster's parts; each executes one step at a time."""

    def __init__(
        self, connections: Sequence[HostPartConnection], records: Sequence[HostRecord]
    ) -> None:
        self._connections = connections
        self._host_parts = {record.host: record.host_part for record in records}
        self._asked = {record.host: Lock() for record in records}

    def all(self, step: SaveStep, show: Show = lambda _: None) -> dict[str, dict[str, Any]]:
        """Execute a step on all hosts; return the answers by host.

        Raises the error or errors after all hosts have finished.
        """
        return self.each(step, show).all()

    def each(self, step: SaveStep, show: Show = lambda _: None) -> Outcomes[dict[str, Any]]:
        """Execute a step on all hosts, and wait for all; return the answers and errors."""

        def ask(connection: HostPartConnection, listener: Listener) -> dict[str, Any]:
            asked = {"host_part": self._host_parts[connection.name], "step": step}
            # An interrupted request is answered first.
            with self._asked[connection.name]:
                answer = connection.ask_openly(Request.SAVE, asked, listener)
            if "error" in answer:
                raise HostSaysError(connection.name, answer)
            return answer

        return ask_all(self._connections, ask, show)


def save_over_hosts(name: str, journal: Journal, say: Say = lambda _: None) -> None:
    """Save the VMs on all hosts of a cluster; the caller holds the cluster's lock.

    Raises VicinalError if the VMs cannot be saved; all VMs then run on. If a VM cannot be resumed,
    all stay paused; a lost host resumes its own VMs. The next command repairs both states.
    """
    repair_save(journal, say=say)
    with _host_parts(journal) as host_parts:
        if is_saved(journal.entries()) and _running(host_parts):
            # Some VMs were resumed without the command's host.
            _let_go_on(host_parts, journal)
        running = host_parts.all(SaveStep.CHECK)
        if not any(told["running"] for told in running.values()):
            raise VicinalError(f"no virtual machine of {name} runs", "check `vicinal status`")
        journal.write(SaveRecord(), Event.BEGUN)
        try:
            host_parts.all(SaveStep.DISCONNECT)
            host_parts.all(SaveStep.STAND_STILL)
            host_parts.all(SaveStep.SAVE)
            host_parts.all(SaveStep.KEEP)
            journal.write(SaveRecord(), Event.MADE)
        except BaseException as error:
            why = _undo(host_parts, journal)
            if isinstance(error, VicinalError) and why:
                raise VicinalError(
                    f"{error.message}; {why}", f"{error.remedy}; then `vicinal start {name}`"
                ) from error
            raise


def restore_over_hosts(name: str, journal: Journal, show: Show = lambda _: None) -> None:
    """Restore and resume the VMs on all hosts of a cluster after a complete or interrupted save.

    Without such a save, do nothing. Raises VicinalError if VMs cannot be resumed. Nothing is lost
    then: restored VMs stay paused until a command resumes all.
    """
    if not is_saved(journal.entries()) and not is_half_saved(journal.entries()):
        return
    with _host_parts(journal) as host_parts:
        try:
            _let_go_on(host_parts, journal, show)
        except VicinalError as error:
            raise VicinalError(
                f"{error.message}; no virtual machine of {name} resumes before all can",
                f"{error.remedy}; then call `vicinal restore {name}` again",
            ) from error
        host_parts.all(SaveStep.ENTER)


def repair_save(journal: Journal, show: Show = lambda _: None, say: Say = lambda _: None) -> None:
    """Resume all VMs if a command was interrupted while it saved or restored them.

    Raises VicinalError if VMs cannot be resumed.
    """
    if is_half_saved(journal.entries()):
        say("a command was interrupted while it saved or restored the virtual machines")
        with _host_parts(journal) as host_parts:
            _let_go_on(host_parts, journal, show)


def _let_go_on(host_parts: SavedHostParts, journal: Journal, show: Show = lambda _: None) -> None:
    host_parts.all(SaveStep.LOOK)
    journal.write(SaveRecord(), Event.BEGUN)
    host_parts.all(SaveStep.BRING_BACK, show)
    outcomes = host_parts.each(SaveStep.GO_ON)
    if outcomes.errors:
        # Peers that run would give up a VM that is paused for long.
        host_parts.each(SaveStep.HOLD)
    outcomes.all()
    journal.write(SaveRecord(), Event.REMOVED)


def _undo(host_parts: SavedHostParts, journal: Journal) -> str:
    """Resume all VMs whose hosts answer; return why some do not resume, empty if all do."""
    back = host_parts.each(SaveStep.BRING_BACK).errors
    stuck = [error for error in back.values() if isinstance(error, HostSaysError)]
    if stuck:
        # If peers went on without this host's VMs, the VMs could not rejoin them later.
        host_parts.each(SaveStep.HOLD)
        return f"{stuck[0].message}; no virtual machine resumes before all can"
    lost = {**back, **host_parts.each(SaveStep.GO_ON).errors}
    if lost:
        return f"the virtual machines of {', '.join(lost)} may still be paused"
    journal.write(SaveRecord(), Event.REMOVED)
    return ""


def _running(host_parts: SavedHostParts) -> int:
    return sum(int(told["running"]) for told in host_parts.all(SaveStep.LOOK).values())


@contextmanager
def _host_parts(journal: Journal) -> Iterator[SavedHostParts]:
    """Connect to the agents of all hosts, which lock their parts with the first step."""
    records = host_records(journal.entries())
    with connected([record.host for record in records]) as connections:
        ask_all(connections, lambda each, _: each.hello()).all()
        yield SavedHostParts(connections, records)


class SaveSteps:
    """The steps on one host; the part is locked until close()."""

    def __init__(self, host_part: str, show: Show) -> None:
        self._host_part = host_part
        self._show = show
        self._lock = ExitStack()
        self._lock.enter_context(sole_command(host_part))
        self._saving = Saving(())
        self._undo = False
        """Whether close() resumes the VMs, because the command has not sent KEEP."""

    def close(self) -> None:
        """Undo the steps unless the command has sent KEEP, and unlock the part."""
        try:
            if self._undo:
                # Errors reach nobody here. The next command resumes what is still paused.
                with suppress(VicinalError):
                    self._saving.undo()
        finally:
            self._lock.close()

    def do(self, step: SaveStep) -> dict[str, Any]:
        """Execute a step; return the answer's fields. Raises VicinalError."""
        match step:
            case SaveStep.CHECK:
                self._saving = Saving(running_vms(self._host_part, self._resources()))
                self._saving.check()
                return {"running": len(self._saving.vms)}
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
        found = all_of(self._resources(), VmResource)
        self._saving = Saving([each.vm for each in found])
        self._saving.check_room()
        states = ("running", "paused", "saved")
        return {state: self._saving.count(state) for state in states}

    def _show_start(self, vm: Vm) -> None:
        self._show(Step(Action.START, VmResource(vm), "it is saved"))

    def _resources(self) -> dict[str, Resource]:
        return recorded_resources(journal_of(self._host_part).entries())
