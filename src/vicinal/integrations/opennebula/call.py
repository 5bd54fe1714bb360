"""The interface to OpenNebula: how it calls the driver, and how the driver answers.

OpenNebula calls an action as a script with arguments (Call), and passes documents in XML, which
contain users' words and are parsed without trust. At the end, the driver runs the stock script of
the same name, or replaces itself by it. The names of domains and libvirt's address are those of the
stock scripts. The cause of a failed action goes to the VM's log and to its ERROR.
"""

import base64
import binascii
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.signals import Ended, signals_raise

_STOCK = "kvm"
_LONGEST_ID = 10
_REPORT = 'source "$1" >/dev/null && error_message "$2"'
_DEPTH = 3
"""Path components of a script below the folder of OpenNebula's scripts: KIND/DRIVER/ACTION."""
_DEFAULT = "qemu:///system"
_LONGEST = 16 << 20
"""Bytes; the field of OpenNebula's database for a VM's document holds no more."""


@dataclass(frozen=True)
class Call:
    """An action as OpenNebula calls it: the script, and its arguments. The last two are VM and
    host.
    """

    script: Path
    arguments: tuple[str, ...]

    @property
    def action(self) -> str:
        """The script's name, such as "deploy"."""
        return self.script.name

    @property
    def remotes(self) -> Path:
        """The folder of OpenNebula's scripts on this host."""
        return self.script.parent.parent.parent

    @property
    def stock(self) -> Path:
        """The script of OpenNebula's own KVM driver."""
        return self.remotes / "vmm" / _STOCK / self.action

    @property
    def vm(self) -> int:
        """Id of the VM. Raises VicinalError if the arguments do not end in the id and a host."""
        text = self.arguments[-2] if len(self.arguments) > 2 else ""
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
            raise VicinalError(
                f"the {len(self.arguments)} arguments of {self.script} do not end in the VM's id "
                "and its host",
                "call the driver as OpenNebula calls its KVM driver",
            )
        return int(text)

    def other(self, action: str, *arguments: str) -> "Call":
        """Another action on the same VM, on this host."""
        return replace(
            self,
            script=self.script.with_name(action),
            arguments=(*arguments, *self.arguments[-2:]),
        )


class _Builder(ElementTree.TreeBuilder):
    """Refuses a document type, which can declare entities; OpenNebula's documents have none."""

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> NoReturn:
        raise VicinalError(
            "the document declares a document type, and OpenNebula declares none",
            "find out what wrote the document",
        )


def parse(document: bytes, what: str, *tags: str) -> Element:
    """The root of a document. Its tag is one of `tags`; errors call the document `what`.

    Raises VicinalError if the document is too long, is no XML, or has another root.
    """
    if len(document) > _LONGEST:
        raise VicinalError(
            f"{what} has {len(document)} bytes, and OpenNebula writes at most {_LONGEST}",
            "find out what wrote the document",
        )
    parser = ElementTree.XMLParser(target=_Builder(insert_comments=True))
    try:
        parser.feed(document)
        root = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise VicinalError(
            f"{what} is not XML ({error})", "see the earlier lines of the VM's log"
        ) from error
    if root.tag not in tags:
        raise VicinalError(
            f"{what} begins with {shown(root.tag)} instead of {' or '.join(tags)}",
            "call the driver as OpenNebula calls its KVM driver",
        )
    return root


def given_in_base64() -> bytes:
    """The document that OpenNebula passes to network drivers on standard input, decoded.

    Raises VicinalError if the input is not base64.
    """
    try:
        return base64.b64decode(sys.stdin.buffer.read(), validate=False)
    except binascii.Error as error:
        raise VicinalError(
            "standard input is not base64, and OpenNebula passes the VM's document in base64",
            "let only OpenNebula call this driver",
        ) from error


def shown(text: str, longest: int = 40) -> str:
    """A user's text for a line of a log: quoted ASCII on one line, at most `longest` characters."""
    return ascii(text if len(text) <= longest else text[:longest] + "...")


@cache
def given() -> bytes:
    """Standard input, read once: the stock script gets the same bytes, even if it runs twice."""
    return sys.stdin.buffer.read()


def become_stock(call: Call, document: bytes | None = None) -> NoReturn:
    """Replace this process by OpenNebula's script, with `document` or the unread standard input.

    Raises VicinalError if the script cannot be run.
    """
    if document is not None:
        given = os.memfd_create("given")
        with os.fdopen(given, "wb", closefd=False) as file:
            file.write(document)
        os.lseek(given, 0, os.SEEK_SET)
        os.dup2(given, 0)
    sys.stderr.flush()
    # Python ignores SIGPIPE, and the script would inherit that
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(call.stock, [str(call.stock), *call.arguments])
    except OSError as error:
        raise _no_stock(call, error) from error


def run_stock(call: Call, hold: int, document: bytes | None) -> int:
    """Run the stock script, with `document` or the unread standard input; returns its exit status.

    `hold` is the descriptor of the VM's lock (Records.held()), which the script inherits: if this
    process is killed, the script still holds the VM. A signal that ends this process is sent to the
    script, and this process waits for the script's end. Raises VicinalError if the script cannot be
    run.
    """
    command: Sequence[str] = [str(call.stock), *call.arguments]
    given = None if document is None else subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=given, pass_fds=(hold,))
    except OSError as error:
        raise _no_stock(call, error) from error
    try:
        process.communicate(document)
    except Ended as ended:
        process.send_signal(ended.number)
        process.wait()
        raise
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def _no_stock(call: Call, error: OSError) -> VicinalError:
    return VicinalError(
        f"{call.stock} cannot be run ({describe_os_error(error)})",
        "install OpenNebula's KVM driver, and run `onehost sync --force`",
    )


def reported(script: Path, action: Callable[[], int | None]) -> int:
    """Run a script's action; returns its exit status: 1, with the cause reported, if the action
    fails.
    """
    try:
        with signals_raise():
            return action() or 0
    except VicinalError as error:
        return _report(script, str(error))
    except Ended as ended:
        return ended.status
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        return _report(script, f"{prefix}{describe_os_error(error)}: check its owner and mode")


def log(action: str, text: str) -> None:
    """Write a line into the VM's log; the action does not fail."""
    sys.stderr.write(f"ERROR: {action}: Vicinal: {' '.join(text.split())}\n")
    sys.stderr.flush()


def _report(script: Path, text: str) -> int:
    """Report by OpenNebula's error_message, which knows whether this version needs marks."""
    line = f"{script.name}: Vicinal: {' '.join(text.split())}"
    common = script.parents[_DEPTH - 1] / "scripts_common.sh"
    sys.stderr.flush()
    told = False
    if common.is_file():
        done = subprocess.run(["bash", "-c", _REPORT, "bash", str(common), line], check=False)
        told = done.returncode == 0
    if not told:
        sys.stderr.write(f"{line}\n")
    return 1


def domain_name(vm: int) -> str:
    """The name that OpenNebula gives to a VM's domain."""
    return f"one-{vm}"


def libvirt_uri() -> str:
    """libvirt's address: LIBVIRT_URI of kvmrc, as for the stock scripts, or qemu:///system."""
    return os.environ.get("LIBVIRT_URI") or _DEFAULT


def saved_description(checkpoint: str) -> str | None:
    """The domain's XML in the file of a saved VM; None if libvirt cannot read it."""
    from vicinal.cluster.vm.libvirt.binding import libvirt

    try:
        connection = libvirt.open(libvirt_uri())  # a read-only connection may not read the file
        try:
            return str(connection.saveImageGetXMLDesc(checkpoint, 0))
        finally:
            connection.close()
    except libvirt.libvirtError:
        return None  # the stock script fails likewise, and reports the cause itself


def running_vms() -> set[int]:
    """Ids of the VMs whose domains are active, also paused. Raises VicinalError if libvirt
    fails.
    """
    # Loaded here: most actions are for VMs without a region, and do not need libvirt.
    from vicinal.cluster.vm.libvirt.binding import explained, libvirt

    uri = libvirt_uri()
    with explained(f"libvirt at {uri} does not list the VMs that run here"):
        connection = libvirt.openReadOnly(uri)
        try:
            domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            names = [domain.name() for domain in domains]
        finally:
            connection.close()
    found = (re.fullmatch(domain_name(0).replace("0", "([0-9]{1,10})"), name) for name in names)
    return {int(each[1]) for each in found if each}
