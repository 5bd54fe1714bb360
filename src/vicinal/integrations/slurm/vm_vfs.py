"""SR-IOV VFs that a job's virtual machines have by VFIO: root's part, and their release.

The card binds these VFs as it binds those of containers (granted_vfs.py). When the
supervisor asks, root binds the VFs to vfio-pci. From then on the job's user owns the files of
their groups in /dev/vfio, until root revokes the grant.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs, vfio_node
from vicinal.host.vf.sysfs import (
    ETHERNET,
    VirtualFunction,
    find_card,
    holding,
    read_records,
)

_CLOSE_SECONDS, _POLL_SECONDS = 10.0, 0.05


def check_for_vms(vfs: Vfs, vf: VirtualFunction) -> None:
    """Raise VicinalError for a VF that a job's virtual machines cannot have."""
    card = find_card(vfs.cards(), vf.physical)
    if card.kind != ETHERNET:
        raise VicinalError(
            f"{vf.address} of {card.address} is an InfiniBand VF, and a job's virtual "
            "machines can have only Ethernet VFs",
            "use containers, or a VF of another card",
        )


def revoke_from_vms(vfs: Vfs, vf: VirtualFunction) -> None:
    """Close a VFIO group to the job's user, and end the user's processes that have it open.

    The user can open the group in any process, and pass the descriptor to other processes. On older
    kernels, a process that holds a group open could also reach the device of its next user. Raises
    VicinalError if a process keeps the group open for 10 s.
    """
    user = read_records(vfs.host)["vfs"][vf.address].get("granted_to")
    node = vfio_node(vf, vfs.host)
    until = time.monotonic() + _CLOSE_SECONDS
    while node.exists():
        vfs.host.give(node, 0)
        for process in holding(vfs.host, vf.address):
            _end(process, user)
        try:
            os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))  # a group can be opened only once
        except OSError as error:
            if time.monotonic() > until:
                raise VicinalError(
                    f"a process still holds {vf.address} open through {node} ({error.strerror})",
                    "end the processes of the job's user; the next epilog releases the VF",
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            return


def _end(process: Path, user: int | None) -> None:
    """Kill a process if all its user ids are the user's: the user may have passed the file to
    others.
    """
    with suppress(OSError, psutil.Error):
        handle = os.pidfd_open(int(process.name))
        try:
            if set(psutil.Process(int(process.name)).uids()) == {user}:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
