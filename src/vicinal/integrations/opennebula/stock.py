"""An action as OpenNebula calls it, and its own script for it, which is called in the end."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.signals import Ended

_STOCK = "kvm"
_LONGEST_ID = 10


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

    def other(self, action: str, *arguments: str) -> "Call":
        """Another action on the same VM, on this host."""
        return replace(
            self,
            script=self.script.with_name(action),
            arguments=(*arguments, *self.arguments[-2:]),
        )


@cache
def given() -> bytes:
    """What OpenNebula gave to read: the stock script is to read it too, be it called twice."""
    return sys.stdin.buffer.read()


def become_stock(call: Call, document: bytes | None = None) -> NoReturn:
    """Leave it to OpenNebula's script alone, with `document` or what we were given to read."""
    if document is not None:
        given = os.memfd_create("given")
        with os.fdopen(given, "wb", closefd=False) as file:
            file.write(document)
        os.lseek(given, 0, os.SEEK_SET)
        os.dup2(given, 0)
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and it would stay so
    try:
        os.execv(call.stock, [str(call.stock), *call.arguments])
    except OSError as error:
        raise _no_stock(call, error) from error


def run_stock(call: Call, hold: int, document: bytes | None) -> int:
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
