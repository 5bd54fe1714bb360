"""The connection to libvirt that one command uses for all machines of a cluster.

A machine can still run when no libvirt knows it any more, such as after libvirt lost its state.
end_orphan() ends such a machine.
"""

import atexit
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon
from vicinal.cluster.vm.libvirt.uri import is_own

if TYPE_CHECKING:
    import psutil

    from vicinal.cluster.vm.libvirt.connection import Hypervisor

_END_SECONDS = 10.0
_POLL_SECONDS = 0.02
_open: dict[str, "Hypervisor"] = {}
"""Connections by their URIs, which last until this process or their libvirt ends."""


def hypervisor_at(uri: str) -> "Hypervisor":
    """The connection, which is open until this process ends.

    Vicinal's own libvirt is started where it does not run. Raises VicinalError where libvirt cannot
    be used by this user, and UnreachableError where it does not answer.
    """
    found = _open.get(uri)
    if found is not None and found.alive:
        return found
    if urlsplit(uri).hostname:
        raise VicinalError(
            f"the virtual machines of a cluster are this host's, and {uri} is another's",
            "let the hypervisor be qemu:///system or qemu:///session",
        )
    if urlsplit(uri).path == "/system" and os.geteuid() != 0:
        raise VicinalError(
            f"the machines' files would be those of {uri} and not this user's",
            "let the hypervisor be qemu:///session, or run as root",
        )
    if is_own(uri):
        Daemon.of_this_user().start()
    return connected_to(uri)


def has_machines(uri: str) -> bool:
    """Whether a libvirt can have any; Vicinal's own has none where it was not started, or removed.

    So nobody has to start it just to look.
    """
    return not is_own(uri) or Daemon.of_this_user().directory.is_dir()


def check_usable(uri: str) -> None:
    """Raise VicinalError where a libvirt cannot have machines, as far as is seen; starts none."""
    daemon = Daemon.of_this_user()
    if is_own(uri) and not daemon.answers():
        daemon.check()
    else:
        hypervisor_at(uri)


def connected_to(uri: str) -> "Hypervisor":
    """A connection to any libvirt, also of another host, until this process ends."""
    found = _open.get(uri)
    if found is not None and found.alive:
        return found
    # Loaded here: whoever has no virtual machines needs no libvirt.
    from vicinal.cluster.vm.libvirt.connection import connect

    stack = ExitStack()
    hypervisor = _open[uri] = stack.enter_context(connect(uri))
    atexit.register(stack.close)
    return hypervisor


def user_of_machines(hypervisor: "Hypervisor") -> tuple[int, int] | None:
    """User and group for machines' QEMU, where libvirt would choose: this user, whose files it has.

    None for a session's libvirt: it has no choice.
    """
    return None if hypervisor.qemu_user() is None else (os.geteuid(), os.getegid())


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
