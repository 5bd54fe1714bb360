"""Connections of a command to the libvirts of other hosts, by ssh."""

import atexit
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.cluster.nodes.vm.hypervisor import connected_to

if TYPE_CHECKING:
    from vicinal.cluster.vm.libvirt.connection import Hypervisor

_SECONDS = 30.0
_POLL_SECONDS = 0.05


def uri_from_here(record: HostRecord) -> str:
    """Return the URI by which the command's host reaches a host's libvirt."""
    return record.hypervisor if record.is_this else _by_ssh(record.hypervisor, record.host)


def _by_ssh(uri: str, host: str) -> str:
    """Return the URI over ssh for qemu:///system or qemu+unix:///system?socket=PATH of a host.

    ssh does not prompt (no_tty), as in all uses of ssh.
    """
    parts = urlsplit(uri)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    query = urlencode({**options, "no_tty": "1"}, safe="/")
    return urlunsplit(("qemu+ssh", host, parts.path, query, ""))


@cache
def libvirt_of(record: HostRecord) -> "Hypervisor":
    """Return a connection to a host's libvirt, which stays open until this process ends.

    libvirt's own connection to another host uses a helper program there that knows only the default
    socket. So a socket that the URI names is forwarded by ssh. Raises VicinalError.
    """
    parts = urlsplit(record.hypervisor)
    sockets = parse_qs(parts.query).get("socket")
    if record.is_this or not sockets:
        return connected_to(uri_from_here(record))
    return connected_to(f"qemu+unix://{parts.path}?socket={_forwarded(record.host, sockets[-1])}")


def _forwarded(host: str, socket: str) -> Path:
    """Forward a socket of another host; return the path of the socket on this host."""
    directory = Path(tempfile.mkdtemp(prefix="vicinal-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    own = directory / "libvirt"
    # Words after the host's name would be a command, and -N runs none.
    ssh, *options = Reach.SSH.command(host, [])
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{own}:{socket}"]
    process = subprocess.Popen(
        [ssh, *forward, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must reach only the command, which undoes in order
    )
    atexit.register(process.kill)
    deadline = time.monotonic() + _SECONDS
    while not own.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise VicinalError(
                f"host {host}: ssh does not forward the socket {socket} of its libvirt",
                "allow it in the host's sshd (AllowStreamLocalForwarding)",
            )
        time.sleep(_POLL_SECONDS)
    return own
