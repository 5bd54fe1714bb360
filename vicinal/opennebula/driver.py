"""What the variant's scripts run: python -I -m vicinal.opennebula.driver SCRIPT ARGUMENT...

SCRIPT is the script's own path, whose name is the action.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vicinal.errors import VicinalError, describe_os_error
from vicinal.opennebula.actions import Call, perform
from vicinal.signals import Ended, signals_raise

_REPORT = 'source "$1" >/dev/null && error_message "$2"'


def main(arguments: Sequence[str]) -> int:
    """Do what OpenNebula calls for; returns the exit status."""
    # Not resolved: the script may be a copy or a link, and its neighbours are where it was called.
    call = Call(Path(arguments[0]).absolute(), tuple(arguments[1:]))
    try:
        with signals_raise():
            return perform(call)
    except VicinalError as error:
        return _report(call, str(error))
    except Ended as ended:
        return ended.status
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _report(call, f"{place}{describe_os_error(error)}: see that its rights are right")


def _report(call: Call, text: str) -> int:
    """Tell OpenNebula why, as its version's own scripts do: they know whether that needs marks."""
    line = f"{call.action}: Vicinal: {' '.join(text.split())}"
    common = call.remotes / "scripts_common.sh"
    sys.stderr.flush()
    told = False
    if common.is_file():
        done = subprocess.run(["bash", "-c", _REPORT, "bash", str(common), line], check=False)
        told = done.returncode == 0
    if not told:
        sys.stderr.write(f"{line}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
