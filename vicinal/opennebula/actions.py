"""The driver's actions: what is done before and after the stock script of the same name.

deploy has a region made and gives it to the domain, cancel and shutdown remove it with its last
VM, save and migrate are refused for a VM that has one. VMs that ask for nothing are left to the
stock scripts alone.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from vicinal.errors import VicinalError, describe_os_error
from vicinal.opennebula.deployment import add_region
from vicinal.opennebula.hypervisor import running_machines
from vicinal.opennebula.limits import FILE, read_limits
from vicinal.opennebula.records import Records, records_directory
from vicinal.opennebula.request import RegionRequest, read_request
from vicinal.signals import Ended

_STOCK = "kvm"
_LONGEST_ID = 10

_REFUSED = {
    "save": (
        "has the region {name}, whose memory is other machines' too, and cannot be saved yet",
        "power it off instead (onevm poweroff)",
    ),
    "migrate": (
        "has the region {name} of this host, and cannot be moved while it runs yet",
        "move it switched off (onevm migrate --poff)",
    ),
}


@dataclass(frozen=True)
class Call:
    """An action as OpenNebula calls it: the script, and its arguments, which end in VM and host."""

    script: Path
    arguments: tuple[str, ...]

    @property
    def action(self) -> str:
        """Its name."""
        return self.script.name

    @property
    def remotes(self) -> Path:
        """OpenNebula's scripts on this host."""
        return self.script.parent.parent.parent

    @property
    def stock(self) -> Path:
        """The script of OpenNebula's own KVM driver."""
        return self.remotes / "vmm" / _STOCK / self.action

    @property
    def vm(self) -> int:
        """Id of the VM. Raises VicinalError."""
        text = self.arguments[-2] if len(self.arguments) > 2 else ""
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
            raise VicinalError(
                f"{self.script} was called with {len(self.arguments)} arguments that do not end in "
                "the VM's id and its host",
                "see that the driver is called as OpenNebula's KVM driver is",
            )
        return int(text)


def perform(call: Call) -> int:
    """Do an action; returns its exit status. Raises VicinalError where it must not be done."""
    records = Records(records_directory(), running_machines)
    if call.action == "deploy":
        return _deploy(call, records)
    if call.action in _REFUSED:
        _refuse(call, records)
    return _end(call, records)


def _deploy(call: Call, records: Records) -> int:
    request = _request(call)
    if request is None:
        _become_stock(call)
    document = add_region(sys.stdin.buffer.read(), call.vm, request)
    limits = read_limits(call.remotes / FILE)
    status = None
    try:
        with records.held(call.vm, request, limits) as hold:
            status = _run_stock(call, hold, document)
    except VicinalError as error:
        if status is None:
            raise
        _say_left(call, error)
    return status


def _refuse(call: Call, records: Records) -> NoReturn:
    for each in records.all():
        if call.vm in each.machines:
            cause, remedy = _REFUSED[call.action]
            raise VicinalError(f"VM {call.vm} {cause.format(name=each.request.name)}", remedy)
    _become_stock(call)


def _end(call: Call, records: Records) -> int:
    """A VM is ended whatever state our records are in: they are cleared up by who comes next."""
    status = None
    try:
        if records.known(call.vm):
            with records.released(call.vm) as hold:
                status = _run_stock(call, hold, None)
    except (VicinalError, OSError) as error:
        _say_left(call, error)
    if status is None:
        _become_stock(call)
    return status


def _say_left(call: Call, error: Exception) -> None:
    sys.stderr.write(f"ERROR: {call.action}: the VM's region is left for now: {error}\n")


def _request(call: Call) -> RegionRequest | None:
    file = Path(call.arguments[0] if call.arguments else "").parent / "vm.xml"
    try:
        document = file.read_bytes()
    except OSError as error:
        raise VicinalError(
            f"{file} cannot be read ({describe_os_error(error)})",
            "use a version of OpenNebula that writes it there before a VM is deployed",
        ) from error
    return read_request(document, call.vm)


def _become_stock(call: Call) -> NoReturn:
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and it would stay so
    try:
        os.execv(call.stock, [str(call.stock), *call.arguments])
    except OSError as error:
        raise _no_stock(call, error) from error


def _run_stock(call: Call, hold: int, document: bytes | None) -> int:
    """Run the stock script, with `document` or what we were given to read; its exit status.

    A signal that ends us ends it as well; we go on when it has ended. If we are killed, it holds
    the VM on.
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
        "see that OpenNebula's KVM driver is installed, and run `onehost sync --force`",
    )
