"""libvirt: its daemons, their sockets, and Python's binding."""

import os
import re
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.system import Host

_DAEMONS = ("virtqemud", "libvirtd")
"""One daemon for QEMU alone, and the older one for everything."""
_SYSTEM = ("run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock")
_ANSWER_SECONDS = 5

_START = "start it: `systemctl start virtqemud.socket` (or libvirtd.socket), or `libvirtd --daemon`"


def check_libvirt(host: Host) -> Iterator[Finding]:
    """What is installed, then the system's daemon, then what a user's session needs."""
    daemon = host.program(*_DAEMONS)
    binding = _binding_version()
    if daemon is None:
        yield skipped(
            "libvirt's daemon is not installed: virtual clusters of guests need it",
            "on Debian `apt-get install libvirt-daemon-system libvirt-clients`",
            daemon=None,
            python_binding=binding,
        )
        return
    found = re.search(r"\d+(?:\.\d+)+", host.ask(daemon, "--version") or "")
    version = found[0] if found else "of unknown version"
    yield passed(f"{daemon.name} {version} is installed", daemon=str(daemon), version=version)
    yield _system(host)
    yield passed(
        f"qemu:///session: {daemon.name} is started for this user when it is asked for (not tried)"
    )
    if binding is None:
        yield warned(
            "Python's binding of libvirt is not installed for this Python",
            "install libvirt-python where vicinal is, or run `make` anew",
            python_binding=None,
        )
    else:
        yield passed(f"Python's binding {binding}", python_binding=binding)


def _system(host: Host) -> Finding:
    place = next((place for place in _SYSTEM if host.exists(place)), None)
    if place is None:
        return warned("qemu:///system: its daemon does not run (no socket)", _START)
    if not host.may(place, os.R_OK | os.W_OK):
        return warned(
            f"qemu:///system: this user may not use /{place}",
            "`usermod --append --groups libvirt USER`, and log in anew; or use qemu:///session",
            socket=f"/{place}",
        )
    complaint = _complaint(host.path(place))
    if complaint is not None:
        return failed(
            f"qemu:///system: nobody answers at /{place} ({complaint})",
            _START,
            socket=f"/{place}",
        )
    return passed(f"qemu:///system: the daemon answers at /{place}", socket=f"/{place}")


def _complaint(path: Path) -> str | None:
    """Why no connection comes about; None if one does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _binding_version() -> str | None:
    try:
        return metadata.version("libvirt-python")
    except metadata.PackageNotFoundError:
        return None


LIBVIRT = Check(
    "libvirt",
    "libvirt",
    "libvirt's daemon, its sockets for the system and a session, and Python's binding",
    check_libvirt,
)
