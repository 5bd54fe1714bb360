"""What the variant's scripts run.

    python -I -m vicinal.integrations.opennebula.driver SCRIPT ARGUMENT...

SCRIPT is the script's own path, whose name is the action.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from vicinal.integrations.opennebula.actions import perform
from vicinal.integrations.opennebula.reporting import reported
from vicinal.integrations.opennebula.stock import Call


def main(arguments: Sequence[str]) -> int:
    """Do what OpenNebula calls for; returns the exit status."""
    # Not resolved: the script may be a copy or a link, and its neighbours are where it was called.
    call = Call(Path(arguments[0]).absolute(), tuple(arguments[1:]))
    return reported(call.script, lambda: perform(call))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
