"""By what Vicinal's own libvirt is known."""

from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from vicinal.host.libvirt_daemons import own_socket


def own_uri() -> str:
    """The URI by which it is reached, whether it runs or not."""
    return uri_of(own_socket())


def is_own(uri: str) -> bool:
    """Whether a URI names it."""
    parts = urlsplit(uri)
    named = parse_qs(parts.query).get("socket", [""])[-1]
    return parts.scheme == "qemu+unix" and not parts.hostname and named == str(own_socket())


def uri_of(socket: Path) -> str:
    """The URI of a system libvirt that answers at a socket."""
    return f"qemu+unix:///system?socket={quote(str(socket))}"
