"""Directories that are written to: whether this user may, and one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.errors import VicinalError


def may_write(directory: Path) -> bool:
    """Whether this user can put files there, or make the directory if it is missing."""
    # Not Path.exists, which raises where a directory above may not be searched.
    there = next(path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def check_writable(directory: Path, remedy: str) -> None:
    """Raise VicinalError where may_write() says no: before a command spends minutes in vain."""
    if not may_write(directory):
        raise VicinalError(f"nothing can be written to {directory} by this user", remedy)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make a directory, if it is missing, and keep others who ask for the same out of it.

    The kernel drops the lock of a process that ends.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # Only read: of users that share a directory one has made the file.
    lock = os.open(directory / ".lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
