"""Directories of commands for state and results, and checks that this user may write there."""

import os
import time
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError

MANIFEST = "manifest.json"
"""A file in each result folder: what was asked for, where it ran, and with which programs."""


def state_directory() -> Path:
    """The directory for this user's state that outlives a command: $XDG_STATE_HOME/vicinal or
    ~/.local/state/vicinal."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "vicinal"


def cache_directory() -> Path:
    """The directory for what this user's commands can make again: $XDG_CACHE_HOME/vicinal or
    ~/.cache/vicinal."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "vicinal"


def may_write(directory: Path) -> bool:
    """Whether this user can create files in a directory, or can create the directory if it is
    missing."""
    # os.access instead of Path.exists: the latter raises an error if a directory above may not be
    # searched.
    there = next(path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def check_writable(directory: Path, remedy: str) -> None:
    """Raise VicinalError with this remedy if may_write() is False.

    Commands call check_writable() before they spend minutes on work whose results could not be
    stored.
    """
    if not may_write(directory):
        raise VicinalError(f"this user may not write to {directory}", remedy)


def results_directory(chosen: Path | None, name: str) -> Path:
    """Return the directory for results: `chosen` (--output), else build/<name> of the checkout,
    else vicinal-<name> in the current directory.

    Raises VicinalError if the user may not write there.
    """
    tree = checkout()
    default = tree / "build" / name if tree else Path(f"vicinal-{name}")
    directory = (chosen or default).absolute()
    check_writable(directory, "name another directory with --output")
    return directory


def result_folder(name: str, output: Path | None, results: str, *, resume: bool) -> Path:
    """Return the folder of one result, which holds or will hold a MANIFEST.

    The folder is `output` if that is given. Otherwise it is a new folder, or with `resume` the
    latest existing one. `name` says what is measured; `results` is the name for
    results_directory(). Raises VicinalError if there is no result to resume.
    """
    if output is not None:
        return results_directory(output, results)
    base = results_directory(None, results)
    if not resume:
        return base / f"{name}-{time.strftime('%Y-%m-%d-%H%M%S')}"
    there = sorted(path.parent for path in base.glob(f"{name}-[0-9]*/{MANIFEST}"))
    if not there:
        raise VicinalError(
            f"there is no result of {name} in {base} to resume",
            "name the result's folder with --output, or leave out --resume",
        )
    return there[-1]
