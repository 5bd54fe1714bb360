"""Where commands keep state and results, and whether this user may write there."""

import os
import time
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError

MANIFEST = "manifest.json"
"""In the folder of a result: what was asked for, where and with what."""


def state_directory() -> Path:
    """What is kept for this user from one command to the next, where XDG has it."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "vicinal"


def may_write(directory: Path) -> bool:
    """Whether this user can put files there, or make the directory if it is missing."""
    # Not Path.exists, which raises where a directory above may not be searched.
    there = next(path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def check_writable(directory: Path, remedy: str) -> None:
    """Raise VicinalError where may_write() says no: before a command spends minutes in vain."""
    if not may_write(directory):
        raise VicinalError(f"nothing can be written to {directory} by this user", remedy)


def results_directory(chosen: Path | None, name: str) -> Path:
    """Where results go: what --output says, build/<name> of the checkout, or vicinal-<name> here.

    Raises VicinalError where the user may not write there.
    """
    tree = checkout()
    default = tree / "build" / name if tree else Path(f"vicinal-{name}")
    directory = (chosen or default).absolute()
    check_writable(directory, "name another directory with --output")
    return directory


def result_folder(name: str, output: Path | None, results: str, *, resume: bool) -> Path:
    """The folder of one result, which has a MANIFEST: `output`, a new one, or to resume the last.

    `name` is what is measured, `results` as in results_directory(). Raises VicinalError where there
    is none to go on with.
    """
    if output is not None:
        return results_directory(output, results)
    base = results_directory(None, results)
    if not resume:
        return base / f"{name}-{time.strftime('%Y-%m-%d-%H%M%S')}"
    there = sorted(path.parent for path in base.glob(f"{name}-[0-9]*/{MANIFEST}"))
    if not there:
        raise VicinalError(
            f"there is no result of {name} in {base} to go on with",
            "name its folder with --output, or leave out --resume",
        )
    return there[-1]
