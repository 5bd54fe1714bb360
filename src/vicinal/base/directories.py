"""Directories that are written to: whether this user may, and one process at a time."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError

MANIFEST = "manifest.json"
"""In the folder of a result: what was asked for, where and with what."""

_LOCK_SECONDS = 1800.0
"""The longest work under a lock, fetching packages over a slow network, takes some minutes."""
_POLL_SECONDS = 0.1


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


@contextmanager
def locked(directory: Path, seconds: float | None = None) -> Iterator[None]:
    """Make a directory, if it is missing, and keep others who ask for the same out of it.

    The kernel drops the lock of a process that ends. Raises VicinalError where another has kept it
    for `seconds`; without them, for longer than any work there takes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # Only read: of users that share a directory one has made the file.
    lock = os.open(directory / ".lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait_for(lock, directory, _LOCK_SECONDS if seconds is None else seconds)
        yield
    finally:
        os.close(lock)


def _wait_for(lock: int, directory: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"another command has been at work in {directory} for"
                    f" {seconds / 60:.0f} minutes",
                    f"end it, if it hangs: fuser {directory}/.lock names it",
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return
