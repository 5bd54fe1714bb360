"""The driver's actions: work before and after OpenNebula's own script of the same name.

    python -I -m vicinal.integrations.opennebula.driver SCRIPT ARGUMENT...

SCRIPT is the script's own path; its name is the action. deploy is in deploy.py. cancel and shutdown
remove a region together with its last VM. save, restore and migrate detach the VM's resources of
this host and attach resources again (moves.py). snapshot_create is refused for a
VM with a region or with VFs of Vicinal's networks. For VMs without a request, the stock
script runs unchanged.
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
    running_vms,
    saved_description,
)
from vicinal.integrations.opennebula.records import Records, records_directory
from vicinal.integrations.opennebula.request import PINNING

SAVE, RESTORE, MIGRATE, ARRIVE = "save", "restore", "migrate", "arrive"
SNAPSHOT = "snapshot_create"
_DISKS_ALONE = "power it off, and take snapshots of its disks only (onevm disk-snapshot-create)"


def main(arguments: Sequence[str]) -> int:
    """Do the action; returns the exit status. Errors go to the VM's log."""
    # Not resolved: the script may be a copy or a link, and its neighbours lie at the called path.
    call = Call(Path(arguments[0]).absolute(), tuple(arguments[1:]))
    return reported(call.script, lambda: perform(call))


if TYPE_CHECKING:
    from vicinal.integrations.opennebula.destination import Destination


def perform(call: Call) -> int:
    """Do an action; returns its exit status. Raises VicinalError if it is refused or fails."""
    records = Records(records_directory(), running_vms)
    _repair(call, records)
    if call.action == "deploy":
        # Loaded here: other actions do not need the modules that deploy imports.
        from vicinal.integrations.opennebula.deploy import deploy

        return deploy(call, records)
    if call.action == SNAPSHOT:
        _check_snapshot(call, records)
        become_stock(call)
    if call.action in (SAVE, RESTORE, MIGRATE, ARRIVE):
        return _leave_and_return(call, records)
    return _end(call, records)


def _leave_and_return(call: Call, records: Records) -> int:
    """save, restore, migrate, and arrive on the destination host; returns the exit status."""
    moves = call.action == MIGRATE
    if (moves or call.action == SAVE) and not _has_ours(call, records):
        if not moves:
            become_stock(call)
        if not _is_kept_on_processors():
            become_stock(call, given())
    if moves:
        from vicinal.integrations.opennebula.destination import reached

        # the other host starts during the imports below
        with reached(call, call.arguments[1]) as there:
            status = _on_site(call, records, there)
    else:
        status = _on_site(call, records, None)
    if status is None:
        become_stock(call, given())
    return status


def _on_site(call: Call, records: Records, there: "Destination | None") -> int | None:
    """Do the action on this host; None if the VM has no resources of Vicinal."""
    # Each action imports only its own modules: imports are most of an action's cost.
    if call.action == RESTORE:
        return _restore(call, records)
    from vicinal.integrations.opennebula.vm import site_of

    with site_of(call, records) as site:
        if call.action == ARRIVE:
            from vicinal.integrations.opennebula.moves import serve

            return serve(call, site)
        if there is not None:
            from vicinal.integrations.opennebula.moves import migrate

            return migrate(call, site, there)
        from vicinal.integrations.opennebula.moves import save

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
    from vicinal.integrations.opennebula.moves import restore
    from vicinal.integrations.opennebula.vm import site_of

    with site_of(call, records) as site:
        return restore(call, site, what, placed)


def _is_kept_on_processors() -> bool:
    """Whether the VM's owner requested VICINAL_PINNING: then the next host must have its
    processors.
    """
    if PINNING.encode() not in given():
        return False
    from vicinal.integrations.opennebula.deploy import pinning_is_asked_for

    return pinning_is_asked_for(given())


def _check_snapshot(call: Call, records: Records) -> None:
    """Raise VicinalError for a VM whose snapshot libvirt would refuse in words of its own."""
    vm = call.vm
    if _known(call, lambda: records.region_of(vm) is not None):
        raise VicinalError(
            f"VM {vm} has a region, and no snapshot can include memory that other VMs share",
            _DISKS_ALONE,
        )
    if _has_vfs(vm):  # the driver of these VFs is vfio-pci, which saves no state
        raise VicinalError(
            f"VM {vm} has SR-IOV VFs, and no snapshot can include their state",
            f"{_DISKS_ALONE}, or first detach the NICs that are VFs",
        )


def _has_ours(call: Call, records: Records) -> bool:
    """Whether a VM may have a region or VFs of Vicinal's networks; does not ask libvirt."""
    vm = call.vm
    if _known(call, lambda: records.region_of(vm) is not None or vm in records.lacking()):
        return True
    return _has_vfs(vm)


def _known(call: Call, asked: Callable[[], bool]) -> bool:
    """The answer of the records; False if the records cannot be trusted.

    Every user of the host can create the records' directory, and must not be able to pin all VMs to
    the host. A VM with a region stays in any case: libvirt itself refuses to save or move a domain
    with a peer's <shmem>.
    """
    try:
        return asked()
    except VicinalError as error:
        log(call.action, f"it is unknown whether VM {call.vm} has a region: {error}")
        return False


def _has_vfs(vm: int) -> bool:
    # Loaded here: most actions know the answer without these modules.
    from vicinal.host.vf.operations import Vfs
    from vicinal.host.vf.owners import assigned_to

    return bool(assigned_to(Vfs(), domain_name(vm)))


def _repair(call: Call, records: Records) -> None:
    """Repair VMs that a killed driver left; if the repair fails, the action goes on."""
    try:
        if set(records.lacking()) <= {call.vm}:
            return
        from vicinal.integrations.opennebula.moves import repair
        from vicinal.integrations.opennebula.vm import site_of

        with site_of(call, records) as site:
            repair(site, call.action, without=call.vm)
    except (VicinalError, OSError) as error:
        log(call.action, f"the repair of other VMs is left to the next action: {error}")


def _end(call: Call, records: Records) -> int:
    """End the VM in any state of the records; the next action cleans up the records."""
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
    log(call.action, f"the VM's region stays until the next action: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
