"""save and restore of a VM that has something of this host: given up before, and got again after.

What the VM is to get again is in its domain, and so in the file that it is saved to: it may be
restored on any host. Its ranks talk over the network from when they left the region to when they
found one again.
"""

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.belongings import Belongings
from vicinal.integrations.opennebula.machine import Machine
from vicinal.integrations.opennebula.placement import Placement
from vicinal.integrations.opennebula.reporting import log
from vicinal.integrations.opennebula.site import Site
from vicinal.integrations.opennebula.stock import Call


def save(call: Call, site: Site) -> int | None:
    """Save the VM; the stock script's exit status. None: it has nothing of ours, do that alone.

    Raises VicinalError where the VM cannot give up what it has. If anything fails, it runs on with
    all of it.
    """
    machine = site.machine(call.vm)
    what = machine.belongings()
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


def restore(call: Call, site: Site, what: Belongings, placed: Placement) -> int:
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


def give_again(action: str, machine: Machine, what: Belongings) -> None:
    """Undo Machine.take(); what fails is said, and left to the next action."""
    try:
        if machine.is_here:
            machine.give(what)
    except VicinalError as error:
        log(action, f"the VM runs on without all that it had: {error}; {_LATER}")


_LATER = "the next action on this host gives it the rest"


def _saved_again(
    call: Call, site: Site, machine: Machine, what: Belongings, hold: int, given: bytes
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
