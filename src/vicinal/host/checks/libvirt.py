"""libvirt: its daemons, their sockets, and its Python binding."""

import os
import re
from collections.abc import Iterator
from importlib import metadata

from vicinal.host.finding import Check, Finding, Status, failed, passed, skipped, warned
from vicinal.host.libvirt_daemons import (
    DAEMONS,
    OWN_DAEMON,
    complaint_of,
    own_socket,
    system_sockets,
)
from vicinal.host.system import Host

_START = (
    "start the daemon: `systemctl start virtqemud.socket` (or libvirtd.socket), or "
    "`libvirtd --daemon`"
)


def check_libvirt(host: Host) -> Iterator[Finding]:
    """Report the installed daemon, then the system's daemon, then the needs of a user's session."""
    daemon = host.program(*DAEMONS)
    binding = _binding_version()
    if daemon is None:
        yield skipped(
            "libvirt's daemon is not installed: virtual clusters of guests need it",
            "on Debian run `apt-get install libvirt-daemon-system libvirt-clients`",
            daemon=None,
            python_binding=binding,
        )
        return
    found = re.search(r"\d+(?:\.\d+)+", host.ask(daemon, "--version") or "")
    version = found[0] if found else "of unknown version"
    yield passed(f"{daemon.name} {version} is installed", daemon=str(daemon), version=version)
    system = _system(host)
    yield system
    if host.user == 0 and system.status is not Status.PASS:
        yield _own(host)
    yield passed(
        f"qemu:///session: {daemon.name} starts for this user on the first connection (not tried)"
    )
    if binding is None:
        yield warned(
            "libvirt's binding is not installed for this Python",
            "install libvirt-python beside vicinal, or run `make` again",
            python_binding=None,
        )
    else:
        yield passed(f"Python's binding {binding}", python_binding=binding)


def _system(host: Host) -> Finding:
    path = next(system_sockets(host), None)
    if path is None:
        return warned("qemu:///system: the daemon does not run (no socket)", _START)
    place = f"/{path.relative_to(host.root)}"
    if not os.access(path, os.R_OK | os.W_OK):
        return warned(
            f"qemu:///system: this user may not use {place}",
            "run `usermod --append --groups libvirt USER` and log in again, or use qemu:///session",
            socket=place,
        )
    complaint = complaint_of(path)
    if complaint is not None:
        judged = warned if host.user == 0 else failed  # root's clusters have a daemon of their own
        return judged(
            f"qemu:///system: no daemon answers at {place} ({complaint})", _START, socket=place
        )
    return passed(f"qemu:///system: the daemon answers at {place}", socket=place)


def _own(host: Host) -> Finding:
    """The daemon that root's clusters use if the system's daemon does not answer."""
    if host.program(OWN_DAEMON) is None:
        return warned(
            f"Vicinal's own libvirt: its daemon {OWN_DAEMON} is not installed",
            "on Debian run `apt-get install libvirt-daemon`",
        )
    path = own_socket()
    if complaint_of(path) is None:
        return passed(f"Vicinal's own libvirt: the daemon answers at {path}", socket=str(path))
    return passed(
        "Vicinal's own libvirt: `vicinal up` starts the daemon for clusters that name no libvirt"
    )


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
