"""Where daemons of libvirt answer on a host: the system's, and one that Vicinal started itself."""

import socket
from collections.abc import Iterator
from pathlib import Path

from vicinal.base.directories import state_directory
from vicinal.host.system import Host

DAEMONS = ("virtqemud", "libvirtd")
"""One daemon for QEMU alone, and the older one for everything."""
OWN_DAEMON = "libvirtd"
"""What Vicinal starts itself."""
_SYSTEM = ("run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock")
_ANSWER_SECONDS = 5


def system_sockets(host: Host) -> Iterator[Path]:
    """Those of the system's daemon that are there, whether anybody listens or not."""
    return (host.path(place) for place in _SYSTEM if host.exists(place))


def complaint_of(path: Path) -> str | None:
    """Why no connection to a socket comes about; None if one does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
        except OSError as error:
            return error.strerror or str(error)
    return None


def system_answers(host: Host) -> bool:
    """Whether a daemon of the system's takes connections."""
    return any(complaint_of(path) is None for path in system_sockets(host))


def own_directory() -> Path:
    """What Vicinal's own libvirt has, where root's clusters need one: settings, state, sockets."""
    return state_directory() / "libvirt"


def own_socket() -> Path:
    """What Vicinal's own libvirt is reached by."""
    return own_directory() / "libvirt-sock"
