"""A host's steps when all machines of a cluster are saved, or let go on, with those of others.

The command asks each host's agent for the same step, and for the next one when all have done it:
nowhere is a machine saved while another runs, and none goes on before all are back. Whoever hears
no more of the command before it said KEEP lets its machines go on by itself.
"""

from contextlib import ExitStack, suppress
from enum import StrEnum
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.saving import Saving
from vicinal.cluster.plan.applying import Show
from vicinal.cluster.plan.planning import Action, Step
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.machines import MachineResource
from vicinal.cluster.resources.saving import running_machines


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
                guests = self._resources().get(f"{GuestsResource.KIND}/main")
                if guests is not None and self._saving.all_run:
                    guests.start()
        return {}

    def _look(self) -> dict[str, Any]:
        found = [each for each in self._resources().values() if isinstance(each, MachineResource)]
        self._saving = Saving([each.machine for each in found])
        self._saving.check_room()
        states = ("running", "paused", "saved")
        return {state: self._saving.count(state) for state in states}

    def _show_start(self, machine: Machine) -> None:
        self._show(Step(Action.START, MachineResource(machine), "it is saved"))

    def _resources(self) -> dict[str, Resource]:
        return recorded_resources(journal_of(self._share).entries())
