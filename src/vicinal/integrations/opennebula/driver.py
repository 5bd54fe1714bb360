"""The driver's actions: what is done before and after OpenNebula's own script of the same name.

    python -I -m vicinal.integrations.opennebula.driver SCRIPT ARGUMENT...

SCRIPT is the script's own path, whose name is the action. deploy is in deploy.py. cancel and
shutdown remove a region with its last VM. save, restore and migrate have a VM give up what it has
of this host, and get it again (save_restore.py, migrate.py). snapshot_create is refused where there
is a region, or a function of ours. VMs that ask for nothing are left to the stock scripts alone.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.call import (
    Call,
    become_stock,
    domain_name,
    given,
    log,
    reported,
    run_stock,
    running_machines,
    saved_description,
)
from vicinal.integrations.opennebula.records import Records, records_directory
from vicinal.integrations.opennebula.request import PINNING

SAVE, RESTORE, MIGRATE, ARRIVE = "save", "restore", "migrate", "arrive"
SNAPSHOT = "snapshot_create"
_DISKS_ALONE = "power it off, and take snapshots of its disks (onevm disk-snapshot-create)"


def main(arguments: Sequence[str]) -> int:
    """Do what OpenNebula calls for; returns the exit status."""
    # Not resolved: the script may be a copy or a link, and its neighbours are where it was called.
    call = Call(Path(arguments[0]).absolute(), tuple(arguments[1:]))
    return reported(call.script, lambda: perform(call))


if TYPE_CHECKING:
    from vicinal.integrations.opennebula.destination import Destination


def perform(call: Call) -> int:
    """Do an action; returns its exit status. Raises VicinalError where it must not be done."""
    records = Records(records_directory(), running_machines)
    _repair(call, records)
    if call.action == "deploy":
        # Other actions do without the modules that deploy needs.
        from vicinal.integrations.opennebula.deploy import deploy

        return deploy(call, records)
    if call.action == SNAPSHOT:
        _check_snapshot(call, records)
        become_stock(call)
    if call.action in (SAVE, RESTORE, MIGRATE, ARRIVE):
        return _leave_and_return(call, records)
    return _end(call, records)


def _leave_and_return(call: Call, records: Records) -> int:
    """save, restore and migrate, and arrive of the host that a VM moves to."""
    moves = call.action == MIGRATE
    if (moves or call.action == SAVE) and not _has_ours(call, records):
        if not moves:
            become_stock(call)
        if not _is_kept_on_processors():
            become_stock(call, given())
    if moves:
        from vicinal.integrations.opennebula.destination import reached

        with reached(call, call.arguments[1]) as there:  # it starts while we load what follows
            status = _on_site(call, records, there)
    else:
        status = _on_site(call, records, None)
    if status is None:
        become_stock(call, given())
    return status


def _on_site(call: Call, records: Records, there: "Destination | None") -> int | None:
    """Do it here; None: the VM has nothing of ours."""
    # Each loads what it needs alone: that is most of what it costs.
    if call.action == RESTORE:
        return _restore(call, records)
    from vicinal.integrations.opennebula.machine import site_of

    with site_of(call, records) as site:
        if call.action == ARRIVE:
            from vicinal.integrations.opennebula.migrate import serve

            return serve(call, site)
        if there is not None:
            from vicinal.integrations.opennebula.migrate import migrate

            return migrate(call, site, there)
        from vicinal.integrations.opennebula.save_restore import save

        return save(call, site)


def _restore(call: Call, records: Records) -> int | None:
    saved = saved_description(call.arguments[0])
    if saved is None:
        return None
    from vicinal.integrations.opennebula.held_resources import saved_mark

    what = saved_mark(saved)
    if not what and not _is_kept_on_processors():
        return None
    from vicinal.integrations.opennebula.held_resources import read_placement

    placed = read_placement(saved)
    if not what:
        from vicinal.host.system import Host

        placed.require(call.action, domain_name(call.vm), Host())
        return None
    from vicinal.integrations.opennebula.machine import site_of
    from vicinal.integrations.opennebula.save_restore import restore

    with site_of(call, records) as site:
        return restore(call, site, what, placed)


def _is_kept_on_processors() -> bool:
    """Whether its owner asked for that: the next host must have these processors."""
    if PINNING.encode() not in given():
        return False
    from vicinal.integrations.opennebula.deploy import pinning_is_asked_for

    return pinning_is_asked_for(given())


def _check_snapshot(call: Call, records: Records) -> None:
    """Raise VicinalError where libvirt would refuse, in words of its own."""
    vm = call.vm
    if _known(call, lambda: records.region_of(vm) is not None):
        raise VicinalError(
            f"VM {vm} has a region, memory of other VMs too that no snapshot can have in it",
            _DISKS_ALONE,
        )
    if _has_functions(vm):  # vfio-pci has them, which saves nothing
        raise VicinalError(
            f"VM {vm} has SR-IOV functions, whose state no snapshot can have in it",
            f"{_DISKS_ALONE}, or detach its NICs that are functions first",
        )


def _has_ours(call: Call, records: Records) -> bool:
    """Whether a VM may have a region, or functions of our networks: asked without libvirt."""
    vm = call.vm
    if _known(call, lambda: records.region_of(vm) is not None or vm in records.lacking()):
        return True
    return _has_functions(vm)


def _known(call: Call, asked: Callable[[], bool]) -> bool:
    """What the records say of a VM's region; none where they are not to be believed.

    Every user of the host may make their directory, and is not to keep all VMs where they are. One
    that has a region stays all the same: libvirt itself saves and moves none that has a peer's.
    """
    try:
        return asked()
    except VicinalError as error:
        log(call.action, f"whether VM {call.vm} has a region is not known: {error}")
        return False


def _has_functions(vm: int) -> bool:
    # Loaded here: most actions know without them.
    from vicinal.host.functions.operations import Functions
    from vicinal.host.functions.owners import assigned_to

    return bool(assigned_to(Functions(), domain_name(vm)))


def _repair(call: Call, records: Records) -> None:
    """Whatever comes of that, the action goes on."""
    try:
        if set(records.lacking()) <= {call.vm}:
            return
        from vicinal.integrations.opennebula.machine import site_of
        from vicinal.integrations.opennebula.save_restore import repair

        with site_of(call, records) as site:
            repair(site, call.action, without=call.vm)
    except (VicinalError, OSError) as error:
        log(call.action, f"VMs that lack what they gave up wait for the next action: {error}")


def _end(call: Call, records: Records) -> int:
    """A VM is ended whatever state our records are in: they are cleared up by who comes next."""
    status = None
    try:
        if records.known(call.vm):
            with records.released(call.vm) as hold:
                status = run_stock(call, hold, None)
    except (VicinalError, OSError) as error:
        _say_left(call, error)
    if status is None:
        become_stock(call)
    return status


def _say_left(call: Call, error: Exception) -> None:
    log(call.action, f"the VM's region is left for now: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
