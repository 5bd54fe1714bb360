"""Machines that still run, and that no libvirt knows any more, as where its state was lost."""

import time
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.machine import Machine

if TYPE_CHECKING:
    import psutil

_END_SECONDS = 10.0
_POLL_SECONDS = 0.02


def end_orphan(machine: Machine) -> None:
    """End the QEMU of a machine, if it runs; only for one that libvirt does not have, or is lost.

    It is known by its name and by our files that it has. Raises VicinalError where it stays.
    """
    import psutil

    found = [process for process in psutil.process_iter(["cmdline"]) if _is(process, machine)]
    for process in found:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise _stays(process, machine) from error
    deadline = time.monotonic() + _END_SECONDS
    while found := [process for process in found if _runs(process)]:
        if time.monotonic() > deadline:
            raise _stays(found[0], machine)
        time.sleep(_POLL_SECONDS)


def _is(process: "psutil.Process", machine: Machine) -> bool:
    words = process.info["cmdline"] or []
    name = f"guest={machine.domain}"
    named = any(word == name or word.startswith(f"{name},") for word in words)
    return named and any(f"{machine.directory}/" in word for word in words)


def _runs(process: "psutil.Process") -> bool:
    import psutil

    try:
        # One that ended may stay for want of a parent that waits for it, and has nothing any more.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _stays(process: "psutil.Process", machine: Machine) -> VicinalError:
    return VicinalError(
        f"{machine.name} still runs, as process {process.pid}, and no libvirt knows it",
        f"end it as its user or as root: `kill -9 {process.pid}`",
    )
