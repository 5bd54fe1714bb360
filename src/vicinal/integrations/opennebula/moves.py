"""save, restore and migrate of a VM with resources of this host: detached before, attached again
after.

The list of the VM's resources is in its domain, and so in the file of a saved VM. So the VM can be
restored on any host. Its ranks use the network from the moment when they leave the region until
they find a region again.

If a driver is killed in between, the next action on the host attaches the missing resources
(repair). repair() covers all VMs of the host without an action.

migrate() runs on the host that the VM leaves. serve() runs on the destination host, in the script
`arrive`, which migrate() starts by ssh. If a step fails, the VM runs on the first host at the end,
with its resources: a VM that has moved already moves back.

The destination host keeps the VM's resources until the VM has them, or can no longer arrive. If the
first host's driver is killed, or the network between the hosts fails, the destination host waits
for the VM: OpenNebula's script goes on without its driver, and may not even have begun the move.
"""

import base64
import time
from contextlib import ExitStack
from typing import Any

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import Answers, Requests
from vicinal.integrations.opennebula.call import Call, log
from vicinal.integrations.opennebula.destination import MARK, Destination, Step
from vicinal.integrations.opennebula.held_resources import HeldResources, Placement
from vicinal.integrations.opennebula.vm import Site, Vm

_LATER = "the next action on this host attaches the rest"
_COMING_SECONDS = 3600.0
"""How long to wait for an arriving VM after the other host went silent."""
_LOST_SECONDS = 600.0
"""How long to wait if nothing of the VM is here when the other host goes silent."""
_POLL_SECONDS = 0.5


def save(call: Call, site: Site) -> int | None:
    """Save the VM; returns the stock script's exit status, or None if the VM has no resources.

    For None the caller runs the stock script. Raises VicinalError if the VM cannot give up its
    resources. If a step fails, the VM runs on with all resources.
    """
    vm = site.vm(call.vm)
    what = vm.held_resources()
    if not what:
        return None
    given = site.given()
    with site.records.released(call.vm) as hold:
        try:
            vm.take(what)
            status = site.stock(call, hold, given)
        except BaseException:
            give_again(call.action, vm, what)
            raise
        if vm.is_here:
            give_again(call.action, vm, what)
        else:
            site.records.lacks(call.vm, something=False)
        return status


def restore(call: Call, site: Site, what: HeldResources, placed: Placement) -> int:
    """Restore the VM and attach its resources; returns the stock script's exit status.

    Raises VicinalError, with the VM still saved, if this host lacks the resources.
    """
    vm, given = site.vm(call.vm), site.given()
    placed.require(call.action, vm.name, site.host)
    with site.kept(call.vm, what, placed.nodes) as hold:
        site.records.lacks(call.vm, something=True)
        status = site.stock(call, hold, given)
        if not vm.is_here:
            site.records.lacks(call.vm, something=False)
            return status
        try:
            vm.give(what)
        except BaseException as error:
            if _saved_again(call, site, vm, what, hold, given):
                raise
            log(call.action, f"the VM runs without some of its resources ({error}); {_LATER}")
        return status


def give_again(action: str, vm: Vm, what: HeldResources) -> None:
    """Undo Vm.take(). A failure is logged, and left to the next action."""
    try:
        if vm.is_here:
            vm.give(what)
    except VicinalError as error:
        log(action, f"the VM runs without some of its resources ({error}); {_LATER}")


def _saved_again(
    call: Call, site: Site, vm: Vm, what: HeldResources, hold: int, given: bytes
) -> bool:
    """Save a restored VM again, because its resources cannot be attached; returns whether this
    worked.

    The stock script has removed the old checkpoint, and the VM has run. So the checkpoint is new.
    """
    checkpoint, host = call.arguments[:2]
    try:
        vm.take(what)
        status = site.stock(call.other("save", vm.name, checkpoint, host), hold, given)
    except VicinalError as error:
        log(call.action, f"the VM cannot be saved again: {error}")
        return False
    if status == 0 and not vm.is_here:
        site.records.lacks(call.vm, something=False)
        return True
    return False


def repair(site: Site, action: str, without: int) -> None:
    """Attach the missing resources of all VMs except `without`, whose action begins.

    Failures are logged.
    """
    for vm in site.records.lacking():
        if vm == without:
            continue
        try:
            _repair(site, vm)
        except (VicinalError, OSError) as error:
            log(action, f"VM {vm} still lacks some of its resources: {error}")


def _repair(site: Site, vm_id: int) -> None:
    with site.records.unattended(vm_id) as free:
        if not free:
            return
        vm = site.vm(vm_id)
        what = vm.lacks if vm.is_here else HeldResources()
        if not what:
            site.records.lacks(vm_id, something=False)
            return
        with site.kept(vm_id, what, vm.placement().nodes):
            vm.give(what)


def migrate(call: Call, site: Site, there: Destination) -> int | None:
    """Move the VM; returns the stock script's exit status, or None if the VM has no resources.

    For None the caller runs the stock script; this function has then checked that the other host
    has the VM's processors. Raises VicinalError if the VM cannot be moved; then the VM runs here
    with its resources.
    """
    vm = site.vm(call.vm)
    what = vm.held_resources()
    if not what:
        if (placed := vm.placement()) != Placement():
            there.ask(Step.PLACEMENT, placed=placed.to_json())
        return None
    host, given = call.arguments[1], site.given()
    status: int | None = None
    with site.records.released(call.vm) as hold:
        there.ask(Step.EXPECT, what=what.to_json(), placed=vm.placement().to_json())
        try:
            vm.take(what)
            status = site.stock(call, hold, given)
            if status == 0:
                there.ask(Step.GIVE)
        except BaseException as error:
            home = _come_home(call, vm, there, what, given)
            if status != 0 or home or not isinstance(error, VicinalError):
                raise
            # The VM is on its destination, and OpenNebula has to know that: no error.
            log(call.action, f"the VM runs on {host} without some of its resources ({error})")
        else:
            if status != 0:
                _come_home(call, vm, there, what, given)
        if not vm.is_here:
            site.records.lacks(call.vm, something=False)
        return status


def _come_home(call: Call, vm: Vm, there: Destination, what: HeldResources, given: bytes) -> bool:
    """Bring the VM back, with its resources; returns whether it runs here."""
    if not vm.is_here:
        try:
            home = call.arguments[2]
            there.ask(Step.SEND_BACK, to=home, given=base64.b64encode(given).decode())
        except VicinalError as error:
            log(call.action, f"the VM cannot move back: {error}")
    give_again(call.action, vm, what)
    return vm.is_here


class Arrival:
    """The arrival of one VM on the destination host."""

    def __init__(self, call: Call, site: Site) -> None:
        self._call = call
        self._site = site
        self._vm = site.vm(call.vm)
        self._kept = ExitStack()
        self._hold = -1
        self._what = HeldResources()
        self._has_all = True
        self._over = False
        self._expected = ""
        """Token of Records.expect(): equal to the recorded one unless another action expects the VM
        again.
        """

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        """Do a step; returns the answer. Raises VicinalError if the step fails."""
        match step:
            case Step.HELLO:
                if values["version"] != vicinal.__version__:
                    raise VicinalError(
                        f"Vicinal {vicinal.__version__} runs there, and Vicinal "
                        f"{values['version']} runs on the first host",
                        "install the same version on all hosts",
                    )
            case Step.PLACEMENT:
                self._require(Placement.from_json(values["placed"]))
            case Step.EXPECT:
                placed = Placement.from_json(values["placed"])
                self._expect(HeldResources.from_json(values["what"]), placed)
            case Step.GIVE:
                self._vm.give(self._what)
                self._has_all = True
            case Step.SEND_BACK:
                self._send_back(str(values["to"]), base64.b64decode(values["given"]))
            case Step.OVER:
                self._over = True
        return {}

    def end(self) -> None:
        """Wait for an expected VM and attach its resources, after the other host ended or went
        silent.
        """
        with self._kept:
            began = time.monotonic()
            while not self._has_all and self._waits(time.monotonic() - began):
                if self._vm.runs:
                    self._vm.give(self._what)
                    self._has_all = True
                else:
                    time.sleep(_POLL_SECONDS)
            if not self._vm.is_here and self._is_ours:
                self._site.records.lacks(self._call.vm, something=False)

    @property
    def _is_ours(self) -> bool:
        return self._site.records.expected(self._call.vm) == self._expected

    def _waits(self, seconds: float) -> bool:
        """Whether to wait for the VM, `seconds` after the other host's last word."""
        if self._vm.is_here:
            return seconds < _COMING_SECONDS and self._is_ours
        return not self._over and seconds < _LOST_SECONDS and self._is_ours

    def _require(self, placed: Placement) -> None:
        placed.require(self._call.action, self._vm.name, self._site.host)

    def _expect(self, what: HeldResources, placed: Placement) -> None:
        if self._vm.is_here:
            raise VicinalError(
                f"a domain {self._vm.name} exists there already",
                "find out whose domain this is",
            )
        self._require(placed)
        kept = self._site.kept(self._call.vm, what, placed.nodes)
        self._hold = self._kept.enter_context(kept)
        self._expected = self._site.records.expect(self._call.vm)
        self._what, self._has_all = what, False

    def _send_back(self, home: str, given: bytes) -> None:
        self._vm.take(self._what)
        self._has_all = False
        own = self._call.arguments[-1]
        call = self._call.other("migrate", self._vm.name, home, own)
        status = self._site.stock(call, self._hold, given)
        if status != 0:
            raise VicinalError(
                f"{call.stock} ended with status {status}", "see its earlier messages"
            )


def serve(call: Call, site: Site) -> int:
    """Answer the other host's steps until it closes the connection; returns the exit status."""
    requests, answers, arrival = Requests(), Answers(MARK), Arrival(call, site)
    try:
        while (request := requests.next()) is not None:
            try:
                step = Step(request.pop("do"))
                answers.say(**arrival.ask(step, **request))
            except VicinalError as error:
                answers.say(error=error.message, remedy=error.remedy)
    finally:
        arrival.end()
    return 0
