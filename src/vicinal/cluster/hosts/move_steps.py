"""A host's steps in the move of a machine, which the command asks its agent for, one by one.

The host's journal has a machine that comes from before it comes, and one that leaves until it is
gone: so `down` finds it wherever it is. Other commands are kept away from the share meanwhile.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.commands import write_commands
from vicinal.cluster.nodes.vm.from_file import check_may_give_away
from vicinal.cluster.nodes.vm.host_part import LocalPart
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.ranks import Endpoint
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.resource import Json, Resource
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.cluster.resources.functions import FunctionResource
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.machines import MachineResource, MachinesResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.vm.libvirt.domain_spec import SharedRegion


class MoveStep(StrEnum):
    """What a host is asked for."""

    LEAVES = "leaves"
    """See that a machine can leave."""
    COMES = "comes"
    """See that it can come, and expect it."""
    SEND_OUT = "send out"
    CLOSE = "close"
    WITHDRAW = "withdraw"
    """The guest has given up its function, whose addresses are the other host's to have."""
    ANNOUNCE = "announce"
    """It is about to get the one of this host, or back."""
    CALL_BACK = "call back"
    AWAIT_BACK = "await back"
    GONE = "gone"
    """It has left."""
    ARRIVED = "arrived"
    STAYS = "stays"
    """It does not come."""
    LOOK = "look"
    """What it is here, if the journal has it: after an interrupted move."""


class MoveSteps:
    """The steps on one host, of one machine; other commands wait until close()."""

    def __init__(self, share: str, node: str) -> None:
        self._share = share
        self._node = node
        self._lock = ExitStack()
        self._lock.enter_context(sole_command(share))
        self._part: LocalPart | None = None
        self._function: FunctionResource | None = None
        """Of this host's, which the machine has, or is to have."""

    def close(self) -> None:
        """Let other commands work on the share."""
        self._lock.close()

    def do(self, step: MoveStep, values: Mapping[str, Any]) -> dict[str, Any]:
        """Do one; returns what the command has to know. Raises VicinalError."""
        match step:
            case MoveStep.LEAVES:
                part = self._look()
                _check_movable(part.machine)
                part.check_leaves()
                return _described(part, self._function)
            case MoveStep.COMES:
                machine = Machine.from_dict(values["machine"])
                return self._comes(machine, str(values["bridge"]), values.get("function"))
            case MoveStep.LOOK:
                if f"{MachineResource.KIND}/{self._node}" not in self._resources():
                    return {}
                return _described(self._look(), self._function)
            case MoveStep.SEND_OUT:
                # Not whole while it is on its way: a job does not take it for lost.
                journal_of(self._share).write(self._resource(), Event.REMOVING)
                return {"ranks": self._there.send_out(float(values["seconds"]))}
            case MoveStep.AWAIT_BACK:
                whom = endpoints(values["ranks"])
                return asdict(self._there.await_back(whom, float(values["seconds"])))
            case MoveStep.CLOSE:
                self._there.close()
            case MoveStep.WITHDRAW:
                self._its_function.withdraw()
            case MoveStep.ANNOUNCE:
                self._its_function.announce()
            case MoveStep.CALL_BACK:
                self._there.call_back()
                journal_of(self._share).write(self._resource(), Event.MADE)
            case MoveStep.GONE:
                self._gone()
            case MoveStep.STAYS:
                if self._part is not None:
                    journal_of(self._share).write(self._resource(), Event.REMOVED)
                    self._release()
            case MoveStep.ARRIVED:
                self._arrived()
        return {}

    @property
    def _there(self) -> LocalPart:
        if self._part is None:
            raise VicinalError(f"{self._node} is not being moved", "see who asks for it")
        return self._part

    @property
    def _its_function(self) -> FunctionResource:
        if self._function is None:
            raise VicinalError(f"{self._node} has no function here", "see who asks for it")
        return self._function

    def _look(self) -> LocalPart:
        """What the journal has of the machine."""
        part = self._part = LocalPart(self._machine())
        found = self._resources().get(f"{FunctionResource.KIND}/{self._node}")
        self._function = found if isinstance(found, FunctionResource) else None
        return part

    def _release(self) -> None:
        """Let go of the function that the machine had here, or was to have."""
        if self._function is None:
            return
        journal = journal_of(self._share)
        journal.write(self._function, Event.REMOVING)
        self._function.remove()
        journal.write(self._function, Event.REMOVED)

    def _resource(self) -> MachineResource:
        return MachineResource(self._there.machine)

    def _resources(self) -> dict[str, Resource]:
        return recorded_resources(journal_of(self._share).entries())

    def _machine(self) -> Machine:
        found = self._resources().get(f"{MachineResource.KIND}/{self._node}")
        if not isinstance(found, MachineResource):
            raise VicinalError(f"there is no virtual machine {self._node}", "see `vicinal status`")
        return found.machine

    def _comes(
        self, machine: Machine, bridge: str, function: Mapping[str, Json] | None
    ) -> dict[str, Any]:
        """`machine` is as it is where it comes from, and so is its function."""
        if machine.owner.partition("-")[0] != str(os.geteuid()):
            raise VicinalError(
                f"{machine.name} is a machine of the user {machine.owner.partition('-')[0]}, and "
                f"commands are of the user {os.geteuid()} here",
                "let the cluster be one user's on all hosts",
            )
        resources = self._resources()
        if f"{MachineResource.KIND}/{self._node}" in resources:
            raise VicinalError(f"it has a machine {self._node} already", "see `vicinal status`")
        common, region = resources.get("machines/main"), resources.get("region/main")
        if not isinstance(common, MachinesResource):
            raise VicinalError(
                "it has no virtual machines of the cluster",
                "choose a host that the file gives some, and call `vicinal up`",
            )
        own = common.at_this_host(machine, bridge)
        if own.region is not None:
            if not isinstance(region, RegionResource):
                raise VicinalError("it has no region of the cluster", "call `vicinal up`")
            own = replace(own, region=region.path.name)
        part = LocalPart(own)
        part.check_comes()
        wanted = None
        if function is not None:
            check_may_give_away(own.name, own.uri)
            wanted = FunctionResource.from_settings(function).at_this_host()
        write_commands(own, first=False)
        self._part, self._function = part, wanted
        journal = journal_of(self._share)
        # The machine first: who finds that it was to come looks for its function, too.
        journal.write(self._resource(), Event.BEGUN)
        if wanted is not None:
            journal.write(wanted, Event.BEGUN)
            wanted.reserve()
        return _described(part, wanted)

    def _gone(self) -> None:
        journal = journal_of(self._share)
        self._release()
        self._there.machine.saved.unlink(missing_ok=True)
        journal.write(self._resource(), Event.REMOVED)
        self._write_guests(without=self._node)

    def _arrived(self) -> None:
        journal = journal_of(self._share)
        if self._function is not None:
            journal.write(self._function, Event.MADE)
        journal.write(self._resource(), Event.MADE)
        # Its console begins in the middle: that it has booted is known all the same.
        self._there.machine.saved.touch()
        self._write_guests(without=None)

    def _write_guests(self, without: str | None) -> None:
        """Who is waited for when machines start: those that are here."""
        journal, resources = journal_of(self._share), self._resources()
        machines = tuple(
            each.machine
            for each in resources.values()
            if isinstance(each, MachineResource) and each.machine.name != without
        )
        ordered = tuple(sorted(machines, key=lambda each: each.number))
        there = resources.get(f"{GuestsResource.KIND}/main")
        if ordered:
            journal.write(GuestsResource(ordered), Event.MADE)
        elif there is not None:
            journal.write(there, Event.REMOVED)


def _check_movable(machine: Machine) -> None:
    """Raise VicinalError for what only a machine of this host can have."""
    if machine.bridge is None or machine.bridge_is_ours:
        raise VicinalError(
            f"{machine.name} reaches those of other hosts by wires, which do not move",
            "name a bridge of each host under hosts, all in one network",
        )
    if machine.link is not None:
        raise VicinalError(
            f"{machine.name} has a card in a network of this host's, beside that of the machines",
            "leave out its network, or let it be default",
        )
    if machine.processors:
        raise VicinalError(
            f"{machine.name} is on processors that the placement chose on this host",
            "let placement.policy be none",
        )


def _described(part: LocalPart, function: FunctionResource | None) -> dict[str, Any]:
    side = part.side()
    region = side.region
    address = None if function is None else function.address
    return {
        "machine": part.machine.to_dict(),
        "domain": part.domain,
        "accelerator": part.accelerator.value,
        "region": None if region is None else [region.name, region.size_bytes],
        "names": list(side.names),
        "function": None if function is None else dict(function.settings),
        "functions": [] if address is None else [address],
    }


def endpoints(told: Iterable[Any]) -> tuple[Endpoint, ...]:
    """Those that a message names."""
    return tuple((int(process), int(endpoint)) for process, endpoint in told)


def region_of(described: Mapping[str, Any]) -> SharedRegion | None:
    """The region that a description names."""
    found = described["region"]
    return None if found is None else SharedRegion(str(found[0]), int(found[1]))
