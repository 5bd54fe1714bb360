"""Reaching the privileged helper: directly for root, through sudo for others.

For others an administrator installs the helper once where only root can write, and lets sudo run
just that. A helper in a checkout would be as good as root for whoever may write there.
"""

import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from vicinal.base.errors import VicinalError
from vicinal.host.functions import privileged
from vicinal.host.functions.privileged.requests import PROTOCOL

SOURCE = Path(privileged.__file__).resolve().parent
INSTALLED = Path("/usr/local/libexec/vicinal-functions")
PYTHON = "/usr/bin/python3"

kept_open: set[int] = set()
"""Descriptors that the helper keeps open until it ends: locks which are to stay until then, if the
command that holds them is killed. sudo closes them."""

# A card may take a second for each function that it makes.
_SECONDS = 180.0


class Helper(Protocol):
    """Something that does what the privileged helper does."""

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        """Do one operation. Raises VicinalError if it was refused, or could not be done."""


def ask_helper(operation: str, **fields: object) -> dict[str, Any]:
    """Have the privileged helper do one operation; the Helper of this host."""
    request = {"protocol": PROTOCOL, "operation": operation, **fields}
    status, output, errors = _run(_command(), json.dumps(request))
    try:
        answer = json.loads(output)
    except ValueError:
        raise _not_reached(status, errors) from None
    if "error" in answer:
        raise VicinalError(*answer["error"])
    return dict(answer)


def check_reachable() -> None:
    """Raise VicinalError where the helper cannot be reached, as far as is seen without asking."""
    if os.geteuid() == 0:
        return
    _command()
    if not INSTALLED.exists():
        raise _not_reached(1, f"{INSTALLED} is not there")


def sudoers_line(user: str) -> str:
    """The line for visudo that lets a user's commands reach the helper, and nothing else."""
    return f"{user} ALL=(root) NOPASSWD: {PYTHON} -I {INSTALLED}"


def _command() -> list[str]:
    if os.geteuid() == 0:
        # What a virtual environment has beside Python is not for it, and takes long to look up.
        return [sys.executable, "-I", "-S", str(SOURCE)]
    if shutil.which("sudo") is None:
        raise VicinalError(
            "changing SR-IOV functions needs root, and sudo was not found",
            "do it as root, or install sudo",
        )
    return ["sudo", "-n", PYTHON, "-I", str(INSTALLED)]


def _run(command: list[str], request: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the helper. It is never interrupted halfway."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # Root that came by sudo is root; only what sudo itself says to the helper counts.
        env={name: value for name, value in os.environ.items() if name != "SUDO_UID"},
        pass_fds=tuple(kept_open),
        start_new_session=True,  # Ctrl-C is for us; the helper finishes what it has begun
    )
    try:
        output, errors = process.communicate(request, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            f"the privileged helper did not answer within {_SECONDS:.0f} s",
            "see what `dmesg` says of the card; `vicinal functions list` shows what is recorded",
        ) from error
    except BaseException:
        process.wait(_SECONDS)
        raise
    return process.returncode, output, errors


def _not_reached(status: int, errors: str) -> VicinalError:
    reason = " ".join(errors.split())[-300:] or f"exit status {status}"
    if os.geteuid() == 0:
        return VicinalError(
            f"the privileged helper ended early ({reason})", "see docs/how-to/virtual-functions.md"
        )
    return VicinalError(
        f"changing SR-IOV functions needs root, and sudo did not run the helper ({reason})",
        f"as root, once: `rm -rf {INSTALLED}; install -D -m 644 -t {INSTALLED} {SOURCE}/*.py`, and"
        f" with visudo the line `{sudoers_line(getpass.getuser())}`",
    )
