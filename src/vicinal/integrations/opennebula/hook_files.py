"""Hooks of ours beside OpenNebula's own network drivers: vnm/DRIVER/{pre,clean}.d/vicinal.

A driver's script runs what is in the folder of its name, after its own work, with what it was given
itself; if that fails, it does.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from vicinal.base.errors import VicinalError

HOOKED_ACTIONS = ("pre", "clean")
_RUNS_HOOKS = re.compile(r"run_hooks|\.d/")
"""In a script of OpenNebula's that runs them; those of before 2019 do not."""


def hook_files(network: Path, driver: str, own: str) -> list[Path]:
    """Where the hooks of a driver are, `own` their name, below the folder of all drivers."""
    return [network / driver / f"{action}.d" / own for action in HOOKED_ACTIONS]


def hooked_drivers(network: Path, own: str) -> set[str]:
    """Drivers that have hooks of that name, whoever made them."""
    found = (network.glob(f"*/{action}.d/{own}") for action in HOOKED_ACTIONS)
    return {file.parent.parent.name for files in found for file in files}


def check_drivers(network: Path, drivers: Iterable[str], own: str) -> None:
    """Raise VicinalError for what is no driver of OpenNebula's, or runs no hooks."""
    for driver in drivers:
        there = sorted({each.parent.name for each in network.glob("*/pre")} - {own})
        if driver not in there:
            raise VicinalError(
                f"{driver} is no network driver of OpenNebula's in {network}, which has"
                f" {', '.join(there) or 'none'}",
                "name one of these",
            )
        for action in HOOKED_ACTIONS:
            script = network / driver / action
            text = script.read_text(errors="replace") if script.is_file() else ""
            if not _RUNS_HOOKS.search(text):
                raise VicinalError(f"{script} runs no hooks", "use a later release of OpenNebula")
