"""save and restore of a VM with resources of this host: detached before, attached again after.

The list of the VM's resources is in its domain, and so in the file of the saved VM. So the VM can
be restored on any host. Its ranks use the network from the moment when they leave the region until
they find a region again.

If a driver is killed in between, the next action on the host attaches the missing resources
(repair). repair() covers all VMs of the host without an action.
"""

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.call import Call, log
from vicinal.integrations.opennebula.held_resources import HeldResources, Placement
from vicinal.integrations.opennebula.vm import Site, Vm

_LATER = "the next action on this host attaches the rest"


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
