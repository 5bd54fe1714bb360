"""How a script tells OpenNebula why it failed, so that the cause is in the VM's log and ERROR."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.signals import Ended, signals_raise

_REPORT = 'source "$1" >/dev/null && error_message "$2"'
_DEPTH = 3
"""Scripts are in KIND/DRIVER below OpenNebula's folder of them."""


def reported(script: Path, action: Callable[[], int | None]) -> int:
    """Do what a script is for; returns its exit status, 1 with the cause told where it fails."""
    try:
        with signals_raise():
            return action() or 0
    except VicinalError as error:
        return _report(script, str(error))
    except Ended as ended:
        return ended.status
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _report(script, f"{place}{describe_os_error(error)}: see that its rights are right")


def log(action: str, text: str) -> None:
    """Say something in the VM's log that does not make the action fail."""
    sys.stderr.write(f"ERROR: {action}: Vicinal: {' '.join(text.split())}\n")
    sys.stderr.flush()


def _report(script: Path, text: str) -> int:
    """As the version's own scripts do: they know whether that needs marks."""
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
