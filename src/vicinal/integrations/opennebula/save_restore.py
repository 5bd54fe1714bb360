"""save and restore of a VM that has something of this host: given up before, and got again after.

What the VM is to get again is in its domain, and so in the file that it is saved to: it may be
restored on any host. Its ranks talk over the network from when they left the region to when they
found one again.

If a driver was killed between the two, the next action on the host gives the VM what it lacks
(repair), as it does for all VMs there that no other action is at work on.
"""

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.call import Call, log
from vicinal.integrations.opennebula.held_resources import HeldResources, Placement
from vicinal.integrations.opennebula.machine import Machine, Site

_LATER = "the next action on this host gives it the rest"


def save(call: Call, site: Site) -> int | None:
    """Save the VM; the stock script's exit status. None: it has nothing of ours, do that alone.

    Raises VicinalError where the VM cannot give up what it has. If anything fails, it runs on with
    all of it.
    """
    machine = site.machine(call.vm)
    what = machine.held_resources()
    if not what:
        return None
    given = site.given()
    with site.records.released(call.vm) as hold:
        try:
            machine.take(what)
            status = site.stock(call, hold, given)
        except BaseException:
            give_again(call.action, machine, what)
            raise
        if machine.is_here:
            give_again(call.action, machine, what)
        else:
            site.records.lacks(call.vm, something=False)
        return status


def restore(call: Call, site: Site, what: HeldResources, placed: Placement) -> int:
    """Restore the VM, and give it what it had; the stock script's exit status.

    Raises VicinalError, with the VM saved as before, where this host does not have that for it.
    """
    machine, given = site.machine(call.vm), site.given()
    placed.require(call.action, machine.name, site.host)
    with site.kept(call.vm, what, placed.nodes) as hold:
        site.records.lacks(call.vm, something=True)
        status = site.stock(call, hold, given)
        if not machine.is_here:
            site.records.lacks(call.vm, something=False)
            return status
        try:
            machine.give(what)
        except BaseException as error:
            if _saved_again(call, site, machine, what, hold, given):
                raise
            log(call.action, f"the VM runs without all that it had ({error}); {_LATER}")
        return status


def give_again(action: str, machine: Machine, what: HeldResources) -> None:
    """Undo Machine.take(); what fails is said, and left to the next action."""
    try:
        if machine.is_here:
            machine.give(what)
    except VicinalError as error:
        log(action, f"the VM runs on without all that it had: {error}; {_LATER}")


def _saved_again(
    call: Call, site: Site, machine: Machine, what: HeldResources, hold: int, given: bytes
) -> bool:
    """Save a VM that was restored, and cannot have what it is to have; whether that was possible.

    The stock script has removed the checkpoint by then, and the VM has run: so it is a new one.
    """
    checkpoint, host = call.arguments[:2]
    try:
        machine.take(what)
        status = site.stock(call.other("save", machine.name, checkpoint, host), hold, given)
    except VicinalError as error:
        log(call.action, f"the VM cannot be saved again: {error}")
        return False
    if status == 0 and not machine.is_here:
        site.records.lacks(call.vm, something=False)
        return True
    return False


def repair(site: Site, action: str, without: int) -> None:
    """Give them what they lack, but the VM `without`, whose action begins; what fails is said."""
    for vm in site.records.lacking():
        if vm == without:
            continue
        try:
            _repair(site, vm)
        except (VicinalError, OSError) as error:
            log(action, f"VM {vm} still lacks what it gave up: {error}")


def _repair(site: Site, vm: int) -> None:
    with site.records.unattended(vm) as free:
        if not free:
            return
        machine = site.machine(vm)
        what = machine.lacks if machine.is_here else HeldResources()
        if not what:
            site.records.lacks(vm, something=False)
            return
        with site.kept(vm, what, machine.placement().nodes):
            machine.give(what)
