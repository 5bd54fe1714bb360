"""SR-IOV functions that a job's virtual machines have by VFIO: what root sees to, and takes back.

The card bounds them as it does those of containers (lent_functions.py). Root has them on vfio-pci
when the keeper asks for it, and their groups' files in /dev/vfio are the job's user's until then.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.host.functions.operations import Functions, vfio_node
from vicinal.host.functions.sysfs import (
    ETHERNET,
    VirtualFunction,
    find_card,
    holding,
    read_records,
)

_CLOSE_SECONDS, _POLL_SECONDS = 10.0, 0.05


def check_for_machines(functions: Functions, function: VirtualFunction) -> None:
    """Raise VicinalError for a function that virtual machines of a job do not get."""
    card = find_card(functions.cards(), function.physical)
    if card.kind != ETHERNET:
        raise VicinalError(
            f"{function.address} of {card.address} is InfiniBand's, and a job's virtual machines "
            "can have Ethernet functions alone",
            "have containers, or a function of another card",
        )


def take_from_machines(functions: Functions, function: VirtualFunction) -> None:
    """Let nobody open by VFIO what a job has no more; end its user's processes that have it open.

    He could open it in any process, and hand it on. Whoever holds a group open could have the
    device of its next user too, on older kernels. Raises VicinalError where one stays.
    """
    user = read_records(functions.host)["functions"][function.address].get("lent")
    node = vfio_node(function, functions.host)
    until = time.monotonic() + _CLOSE_SECONDS
    while node.exists():
        functions.host.give(node, 0)
        for process in holding(functions.host, function.address):
            _end(process, user)
        try:
            os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))  # a group is open only once
        except OSError as error:
            if time.monotonic() > until:
                raise VicinalError(
                    f"{function.address} is still held open through {node} ({error.strerror})",
                    "end the job's user's processes; the next epilog takes it back",
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            return


def _end(process: Path, user: int | None) -> None:
    """Kill a process that is this user's alone: he may have handed the file to anybody's."""
    with suppress(OSError, psutil.Error):
        handle = os.pidfd_open(int(process.name))
        try:
            if set(psutil.Process(int(process.name)).uids()) == {user}:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
