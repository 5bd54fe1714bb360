"""migrate of a VM that has something of this host: it gives that up, moves, and gets the other's.

Where anything fails the VM runs here in the end, with what it had: if it has moved by then, it
moves back.
"""

import base64

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.belongings import Belongings
from vicinal.integrations.opennebula.machine import Machine
from vicinal.integrations.opennebula.placement import Placement
from vicinal.integrations.opennebula.reporting import log
from vicinal.integrations.opennebula.site import Site
from vicinal.integrations.opennebula.steps import Destination, Step
from vicinal.integrations.opennebula.stock import Call
from vicinal.integrations.opennebula.suspending import give_again


def migrate(call: Call, site: Site, there: Destination) -> int | None:
    """Move the VM; the stock script's exit status. None: it has nothing of ours, do that alone.

    The other host has the processors that it is kept on then.

    Raises VicinalError where it cannot be moved; it runs here with all that it had then.
    """
    machine = site.machine(call.vm)
    what = machine.belongings()
    if not what:
        if (placed := machine.placement()) != Placement():
            there.ask(Step.PLACE, placed=placed.to_json())
        return None
    host, given = call.arguments[1], site.given()
    status: int | None = None
    with site.records.released(call.vm) as hold:
        there.ask(Step.EXPECT, what=what.to_json(), placed=machine.placement().to_json())
        try:
            machine.take(what)
            status = site.stock(call, hold, given)
            if status == 0:
                there.ask(Step.GIVE)
        except BaseException as error:
            home = _come_home(call, machine, there, what, given)
            if status != 0 or home or not isinstance(error, VicinalError):
                raise
            # It is where it was to be, and OpenNebula has to know that.
            log(call.action, f"the VM runs on {host} without all that it had ({error})")
        else:
            if status != 0:
                _come_home(call, machine, there, what, given)
        if not machine.is_here:
            site.records.lacks(call.vm, something=False)
        return status


def _come_home(
    call: Call, machine: Machine, there: Destination, what: Belongings, given: bytes
) -> bool:
    """Have the VM run here again, with all that it had; whether it does run here."""
    if not machine.is_here:
        try:
            home = call.arguments[2]
            there.ask(Step.SEND_BACK, to=home, given=base64.b64encode(given).decode())
        except VicinalError as error:
            log(call.action, f"the VM cannot come back: {error}")
    give_again(call.action, machine, what)
    return machine.is_here
