"""VMs that lack what they gave up, since the driver that had them do so was killed, get it again.

Any action on a host does that first, for all VMs there that no other action is at work on.
"""

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.belongings import Belongings
from vicinal.integrations.opennebula.reporting import log
from vicinal.integrations.opennebula.site import Site


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
        what = machine.lacks if machine.is_here else Belongings()
        if not what:
            site.records.lacks(vm, something=False)
            return
        with site.kept(vm, what, machine.placement().nodes):
            machine.give(what)
