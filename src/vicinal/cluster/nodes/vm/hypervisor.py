"""The connection to libvirt that one command uses for all machines of a cluster."""

import atexit
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.libvirt.own import is_own
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon

if TYPE_CHECKING:
    from vicinal.cluster.vm.libvirt.connection import Hypervisor

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
