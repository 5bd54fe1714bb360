"""A connection to libvirt: to the system's, to a user's session, or to another host."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.cluster.vm.libvirt.uri import SESSION, SYSTEM, default_uri

_OPEN_SECONDS = 180.0
"""A daemon that has just started first asks each QEMU for its capabilities."""
_SILENCE_SECONDS = 5
_SILENCES = 12
"""After this number of unanswered keepalive messages the connection is closed, even during a call.
"""


@dataclass(frozen=True)
class Hypervisor:
    """An open connection."""

    uri: str
    connection: "libvirt.virConnect"
    lent: frozenset[str] = frozenset()
    """Names of domains that are not Vicinal's, but whose owner requests the operations on them."""

    @property
    def alive(self) -> bool:
        """Whether the other end answered last; sends nothing."""
        try:
            return bool(self.connection.isAlive())
        except libvirt.libvirtError:
            return False

    def qemu_user(self) -> tuple[int, int] | None:
        """User and group of QEMU, which must be able to open regions and images.

        None for a session, whose QEMU runs as the session's user.
        """
        with explained("libvirt does not report this host's capabilities"):
            capabilities = ElementTree.fromstring(self.connection.getCapabilities())
        for model in capabilities.iterfind("host/secmodel"):
            label = model.findtext("baselabel") or ""
            found = re.fullmatch(r"\+(\d+):\+(\d+)", label)
            if model.findtext("model") == "dac" and found:
                return int(found[1]), int(found[2])
        return None

    def check(self, accelerator: Accelerator) -> str:
        """Path of the QEMU that would run a domain with this accelerator.

        Raises VicinalError if there is none. A libvirt that knows KVM does not prove that a guest
        boots with it: see vicinal.cluster.vm.qemu.accelerator_probe.
        """
        kind = "kvm" if accelerator is Accelerator.KVM else "qemu"
        try:
            text = self.connection.getDomainCapabilities(None, "x86_64", "q35", kind)
        except libvirt.libvirtError as error:
            if accelerator is Accelerator.KVM:
                raise VicinalError(
                    f"libvirt at {self.uri} has no KVM ({error})",
                    "check that QEMU's user may open /dev/kvm, or use TCG",
                ) from error
            raise VicinalError(
                f"libvirt at {self.uri} has no QEMU for x86-64 machines of type q35 ({error})",
                "install qemu-system-x86 and libvirt's QEMU driver on that host",
            ) from error
        return ElementTree.fromstring(text).findtext("path") or ""


@contextmanager
def connect(uri: str | None = None) -> Iterator[Hypervisor]:
    """Open a connection for the duration of the `with` statement.

    `uri` is libvirt's URI, also of another host: qemu+ssh://user@host/system. A session's daemon
    starts by itself. Raises UnreachableError if libvirt does not answer within a time limit.
    """
    uri = uri or default_uri()
    if not urlsplit(uri).scheme.startswith("qemu"):
        raise VicinalError(
            f"{uri!r} is not a connection to QEMU",
            f"use {SYSTEM}, {SESSION} or qemu+ssh://HOST/system",
        )
    _run_events()
    connection = _open(uri)
    try:
        connection.setKeepAlive(_SILENCE_SECONDS, _SILENCES)
        yield Hypervisor(uri, connection)
    finally:
        with suppress(libvirt.libvirtError):
            connection.close()


def _open(uri: str) -> "libvirt.virConnect":
    """Connect in a thread, because libvirt has no time limit for connecting."""
    result: list[libvirt.virConnect | libvirt.libvirtError] = []
    lock, given_up = threading.Lock(), threading.Event()

    def work() -> None:
        try:
            opened = libvirt.open(uri)
        except libvirt.libvirtError as error:
            result.append(error)
            return
        with lock:
            result.append(opened)
            if given_up.is_set():
                opened.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_OPEN_SECONDS)
    with lock:
        if not result:
            given_up.set()
            raise UnreachableError(
                f"libvirt at {uri} did not answer within {_OPEN_SECONDS:.0f} s",
                "check whether its daemon runs and answers: virsh -c URI version",
            )
    if isinstance(result[0], libvirt.libvirtError):
        raise _unreachable(uri, result[0]) from result[0]
    return result[0]


def _unreachable(uri: str, error: "libvirt.libvirtError") -> UnreachableError:
    message = " ".join((error.get_error_message() or str(error)).split())
    parts = urlsplit(uri)
    lower = message.lower()
    code = error.get_error_code()
    refused = code in (libvirt.VIR_ERR_AUTH_FAILED, libvirt.VIR_ERR_AUTH_CANCELLED)
    if refused or "permission denied" in lower or "authentication" in lower:
        remedy = "join the group libvirt and log in again, or use qemu:///session"
    elif parts.hostname:
        remedy = "check that ssh connects without a password, and that libvirt runs there"
    elif "driver" in lower or code == libvirt.VIR_ERR_NO_CONNECT:
        remedy = "install libvirt's QEMU driver: libvirt-daemon-driver-qemu"
    elif "session" in parts.path:
        remedy = "install libvirt-daemon, and check that XDG_RUNTIME_DIR or HOME is writable"
    elif uri == SYSTEM and os.geteuid() == 0:
        remedy = (
            "install and start libvirt's daemon (libvirtd), or name no connection: Vicinal then "
            "starts a daemon of its own"
        )
    else:
        remedy = "install and start libvirt's daemon (libvirtd), or use qemu:///session"
    return UnreachableError(f"libvirt at {uri} cannot be reached ({message})", remedy)


@cache
def _run_events() -> None:
    """Start libvirt's event loop, once a process: events and keepalive messages need it."""
    libvirt.virEventRegisterDefaultImpl()

    def loop() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=loop, name="libvirt events", daemon=True).start()
