"""Calls the privileged helper: directly as root, through sudo as another user.

For other users, an administrator installs the helper once in a directory that only root can write,
and allows sudo to run only the helper. A helper in a checkout would give root's rights to every
user who may write to the checkout.
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
from vicinal.host.vf import privileged
from vicinal.host.vf.privileged.requests import PROTOCOL

SOURCE = Path(privileged.__file__).resolve().parent
INSTALLED = Path("/usr/local/libexec/vicinal-vfs")
PYTHON = "/usr/bin/python3"

kept_open: set[int] = set()
"""Descriptors that the helper keeps open until it ends, such as locks that must outlive a killed
command. sudo closes these descriptors."""

# A card may need a second for each VF that it creates.
_SECONDS = 180.0


class Helper(Protocol):
    """An object that performs the privileged helper's operations."""

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        """Perform one operation. Raises VicinalError if the operation was refused or failed."""


def ask_helper(operation: str, **fields: object) -> dict[str, Any]:
    """Ask this host's privileged helper for one operation. Raises VicinalError if it fails."""
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
    """Raise VicinalError if the helper is certainly unreachable, without calling it."""
    if os.geteuid() == 0:
        return
    _command()
    if not INSTALLED.exists():
        raise _not_reached(1, f"{INSTALLED} does not exist")


def sudoers_line(user: str) -> str:
    """Return the line for visudo that allows a user's commands to run the helper, and nothing
    else."""
    return f"{user} ALL=(root) NOPASSWD: {PYTHON} -I {INSTALLED}"


def _command() -> list[str]:
    if os.geteuid() == 0:
        # -S, because the helper needs no packages of a virtual environment, and finding them takes
        # long.
        return [sys.executable, "-I", "-S", str(SOURCE)]
    if shutil.which("sudo") is None:
        raise VicinalError(
            "changing SR-IOV VFs needs root, and sudo was not found",
            "run the command as root, or install sudo",
        )
    return ["sudo", "-n", PYTHON, "-I", str(INSTALLED)]


def _run(command: list[str], request: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the helper, which always runs to its end."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # SUDO_UID is removed: root by sudo counts as root; only sudo's own call of the helper sets
        # the user.
        env={name: value for name, value in os.environ.items() if name != "SUDO_UID"},
        pass_fds=tuple(kept_open),
        start_new_session=True,  # Ctrl-C ends the command; the helper completes its operation
    )
    try:
        output, errors = process.communicate(request, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            f"the privileged helper did not answer within {_SECONDS:.0f} s",
            "read the card's messages in `dmesg`; `vicinal vf list` shows the records",
        ) from error
    except BaseException:
        process.wait(_SECONDS)
        raise
    return process.returncode, output, errors


def _not_reached(status: int, errors: str) -> VicinalError:
    reason = " ".join(errors.split())[-300:] or f"exit status {status}"
    if os.geteuid() == 0:
        return VicinalError(
            f"the privileged helper ended early ({reason})", "see docs/how-to/vfs.md"
        )
    return VicinalError(
        f"changing SR-IOV VFs needs root, and sudo did not run the helper ({reason})",
        f"as root, once: `rm -rf {INSTALLED}; install -D -m 644 -t {INSTALLED} {SOURCE}/*.py`, and"
        f" with visudo the line `{sudoers_line(getpass.getuser())}`",
    )
