"""The connection to libvirt that one command uses for all VMs of a cluster.

A VM can still run although libvirt no longer knows it, for example after libvirt lost its
state. end_orphan() ends such a VM.
"""

import atexit
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon
from vicinal.cluster.vm.libvirt.uri import is_own

if TYPE_CHECKING:
    import psutil

    from vicinal.cluster.vm.libvirt.connection import Hypervisor

_END_SECONDS = 10.0
_POLL_SECONDS = 0.02
_open: dict[str, "Hypervisor"] = {}
"""Open connections by URI. A connection lasts until this process or its libvirt ends."""


def hypervisor_at(uri: str) -> "Hypervisor":
    """The connection to libvirt at a URI, which stays open until this process ends.

    Starts Vicinal's own libvirt if it does not run. Raises VicinalError if this user cannot use
    this libvirt, and UnreachableError if it does not answer.
    """
    found = _open.get(uri)
    if found is not None and found.alive:
        return found
    if urlsplit(uri).hostname:
        raise VicinalError(
            f"a cluster's virtual machines run on this host, and {uri} is on another host",
            "set `hypervisor` to qemu:///system or qemu:///session",
        )
    if urlsplit(uri).path == "/system" and os.geteuid() != 0:
        raise VicinalError(
            f"libvirt at {uri} would own the VMs' files instead of this user",
            "set `hypervisor` to qemu:///session, or run as root",
        )
    if is_own(uri):
        Daemon.of_this_user().start()
    return connected_to(uri)


def has_vms(uri: str) -> bool:
    """Whether libvirt at this URI can have VMs.

    Vicinal's own libvirt has none if it was never started, or was removed. So no caller has to
    start it only to look for VMs.
    """
    return not is_own(uri) or Daemon.of_this_user().directory.is_dir()


def check_usable(uri: str) -> None:
    """Raise VicinalError if libvirt visibly cannot have VMs; starts no daemon."""
    daemon = Daemon.of_this_user()
    if is_own(uri) and not daemon.answers():
        daemon.check()
    else:
        hypervisor_at(uri)


def connected_to(uri: str) -> "Hypervisor":
    """A connection to any libvirt, also on another host, until this process ends."""
    found = _open.get(uri)
    if found is not None and found.alive:
        return found
    # Imported here, because a cluster without virtual machines needs no libvirt.
    from vicinal.cluster.vm.libvirt.connection import connect

    stack = ExitStack()
    hypervisor = _open[uri] = stack.enter_context(connect(uri))
    atexit.register(stack.close)
    return hypervisor


def user_of_vms(hypervisor: "Hypervisor") -> tuple[int, int] | None:
    """This user and group, for the VMs' QEMU, if libvirt would otherwise choose a user.

    QEMU needs access to this user's files. None for a session's libvirt, which cannot choose.
    """
    return None if hypervisor.qemu_user() is None else (os.geteuid(), os.getegid())


def end_orphan(vm: Vm) -> None:
    """Kill the QEMU of a VM that libvirt does not know, or whose libvirt is lost.

    The process is found by the VM's name and by the cluster's files in its command line.
    Raises VicinalError if it does not end.
    """
    import psutil

    found = [process for process in psutil.process_iter(["cmdline"]) if _is(process, vm)]
    for process in found:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise _stays(process, vm) from error
    deadline = time.monotonic() + _END_SECONDS
    while found := [process for process in found if _runs(process)]:
        if time.monotonic() > deadline:
            raise _stays(found[0], vm)
        time.sleep(_POLL_SECONDS)


def _is(process: "psutil.Process", vm: Vm) -> bool:
    words = process.info["cmdline"] or []
    name = f"guest={vm.domain}"
    named = any(word == name or word.startswith(f"{name},") for word in words)
    return named and any(f"{vm.directory}/" in word for word in words)


def _runs(process: "psutil.Process") -> bool:
    import psutil

    try:
        # An ended process may stay as a zombie until its parent waits for it. It holds nothing.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _stays(process: "psutil.Process", vm: Vm) -> VicinalError:
    return VicinalError(
        f"{vm.name} still runs, as process {process.pid}, and no libvirt knows it",
        f"end it as its user or as root: `kill -9 {process.pid}`",
    )
