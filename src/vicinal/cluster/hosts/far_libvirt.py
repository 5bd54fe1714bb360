"""The libvirt of another host, as a command speaks to it: by ssh, for as long as it runs."""

import atexit
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.cluster.hosts.uri import uri_from_here
from vicinal.cluster.nodes.vm.hypervisor import connected_to

if TYPE_CHECKING:
    from vicinal.cluster.vm.libvirt.connection import Hypervisor

_SECONDS = 30.0
_POLL_SECONDS = 0.05


@cache
def libvirt_of(record: HostRecord) -> "Hypervisor":
    """The connection, which is open until this process ends. Raises VicinalError.

    libvirt gets to other hosts by itself, by a helper of its own there that knows the usual socket
    alone. A socket that the URI names is forwarded by ssh.
    """
    parts = urlsplit(record.hypervisor)
    sockets = parse_qs(parts.query).get("socket")
    if record.is_this or not sockets:
        return connected_to(uri_from_here(record))
    return connected_to(f"qemu+unix://{parts.path}?socket={_forwarded(record.host, sockets[-1])}")


def _forwarded(host: str, socket: str) -> Path:
    """A socket of this host that leads to one of another."""
    directory = Path(tempfile.mkdtemp(prefix="vicinal-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    own = directory / "libvirt"
    # What comes after the host would be a command there: none is run.
    ssh, *options = Reach.SSH.command(host, [])
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{own}:{socket}"]
    process = subprocess.Popen(
        [ssh, *forward, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the command, which undoes in order
    )
    atexit.register(process.kill)
    deadline = time.monotonic() + _SECONDS
    while not own.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise VicinalError(
                f"host {host}: ssh does not forward {socket} of its libvirt",
                "see that its sshd allows it (AllowStreamLocalForwarding)",
            )
        time.sleep(_POLL_SECONDS)
    return own
