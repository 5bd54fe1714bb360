"""Sockets of libvirt's daemons: the system's daemon, and a daemon that Vicinal started."""

import socket
from collections.abc import Iterator
from pathlib import Path

from vicinal.base.directories import state_directory
from vicinal.host.system import Host

DAEMONS = ("virtqemud", "libvirtd")
"""virtqemud serves only QEMU; libvirtd, the older daemon, serves all drivers."""
OWN_DAEMON = "libvirtd"
"""The daemon that Vicinal starts for itself."""
_SYSTEM = ("run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock")
_ANSWER_SECONDS = 5


def system_sockets(host: Host) -> Iterator[Path]:
    """Yield the existing sockets of the system's daemon, with or without a listener."""
    return (host.path(path) for path in _SYSTEM if host.exists(path))


def complaint_of(path: Path) -> str | None:
    """Return why a socket accepts no connection; None if it accepts one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
        except OSError as error:
            return error.strerror or str(error)
    return None


def system_answers(host: Host) -> bool:
    """Whether the system's daemon accepts connections."""
    return any(complaint_of(path) is None for path in system_sockets(host))


def own_directory() -> Path:
    """Directory of Vicinal's own libvirt for root's clusters: settings, state, sockets."""
    return state_directory() / "libvirt"


def own_socket() -> Path:
    """Socket of Vicinal's own libvirt."""
    return own_directory() / "libvirt-sock"
