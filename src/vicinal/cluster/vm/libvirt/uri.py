"""URIs of libvirt, and whether one names Vicinal's own daemon; does not import libvirt."""

import os
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from vicinal.host.libvirt_daemons import own_socket, system_answers
from vicinal.host.system import Host

SYSTEM = "qemu:///system"
SESSION = "qemu:///session"


def default_uri() -> str:
    """The URI if the user names none: LIBVIRT_DEFAULT_URI, or the session of an unprivileged user.

    For root it is the system's libvirt if it answers, otherwise Vicinal's own, which may not run.
    """
    named = os.environ.get("LIBVIRT_DEFAULT_URI")
    if named:
        return named
    if os.geteuid() != 0:
        return SESSION
    return SYSTEM if system_answers(Host()) else own_uri()


def own_uri() -> str:
    """The URI of Vicinal's own libvirt, whether it runs or not."""
    return uri_of(own_socket())


def is_own(uri: str) -> bool:
    """Whether a URI names Vicinal's own libvirt."""
    parts = urlsplit(uri)
    named = parse_qs(parts.query).get("socket", [""])[-1]
    return parts.scheme == "qemu+unix" and not parts.hostname and named == str(own_socket())


def uri_of(socket: Path) -> str:
    """The URI of a system libvirt with this socket."""
    return f"qemu+unix:///system?socket={quote(str(socket))}"
