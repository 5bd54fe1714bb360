"""Atomic replacement of files, and locks that the kernel drops when the process ends."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from vicinal.base.errors import VicinalError

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
"""Flags with which lock() opens a directory."""
OWN_FILE = os.O_RDWR | os.O_CREAT
"""Flags with which lock() opens a file, and creates the file if it is missing."""

_LOCK_SECONDS = 1800.0
"""The longest work under a lock, fetching packages over a slow network, takes some minutes."""
_POLL_SECONDS = 0.05


class Durability(Enum):
    """What survives a power failure after a new file has its name."""

    NONE = auto()
    """No guarantee: the file may be empty. For content that a reboot makes worthless."""
    CONTENT = auto()
    """The file has either its old content or all of its new content."""
    NAME = auto()
    """The file has its new content."""


def write_atomically(
    path: Path,
    content: str | bytes | memoryview,
    durability: Durability,
    *,
    mode: int | None = None,
    by_several: bool = False,
) -> None:
    """Replace a file in one step; readers find all of the old content or all of the new.

    Without `mode` the process's umask decides the mode. `by_several` is as in replaced(). Raises
    OSError, for instance on a full disk; the old content then stays.
    """
    data = content.encode() if isinstance(content, str) else content
    with replaced(path, durability, by_several=by_several) as part:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o666 if mode is None else mode), "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if durability is not Durability.NONE:
                os.fsync(file.fileno())


@contextmanager
def replaced(
    path: Path, durability: Durability = Durability.NONE, *, by_several: bool = False
) -> Iterator[Path]:
    """Yield a path beside `path` for the new content, and rename the new file to `path` at the end.

    The block itself syncs the content if `durability` asks for that. If the block fails, the new
    file is removed. A killed process leaves `.NAME.part`, which the next writer removes. With
    `by_several` the file is `.NAME.PID.part`, so that several processes can write the same file at
    the same time.
    """
    writer = f".{os.getpid()}" if by_several else ""
    part = path.with_name(f".{path.name}{writer}.part")
    part.unlink(missing_ok=True)
    try:
        yield part
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if durability is Durability.NAME:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Write the names of a directory's files to the disk. Raises OSError."""
    descriptor = os.open(directory, DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(
    path: Path,
    flags: int = DIRECTORY,
    mode: int = 0o600,
    *,
    shared: bool = False,
    seconds: float | None = 0.0,
    make: Callable[[], object] | None = None,
    check: Callable[[os.stat_result], object] | None = None,
) -> int:
    """Open a file or a directory, lock it, and return the descriptor; closing the descriptor
    unlocks.

    `make` creates the directory, which other processes may remove at any time; lock() calls `make`
    before each attempt. `check` raises an error if the opened file must not be locked. Raises
    BlockingIOError if another process holds the lock for `seconds` (None: no limit), and OSError if
    the file cannot be opened.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        is_over = deadline is not None and time.monotonic() >= deadline
        try:
            if make is not None:
                make()
            descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        except FileNotFoundError:  # another process removed the directory just now
            if make is None or is_over:
                raise
        else:
            taken = False
            try:
                if check is not None:
                    check(os.fstat(descriptor))
                if take_lock(descriptor, shared=shared, wait=deadline is None):
                    taken = _is_at(path, descriptor, follow_symlinks=not flags & os.O_NOFOLLOW)
            finally:
                if not taken:
                    os.close(descriptor)
            if taken:
                return descriptor
            if is_over:
                raise BlockingIOError(f"another process holds {path}")
        if deadline is not None:
            time.sleep(_POLL_SECONDS)


def take_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file until the descriptor is closed, even if the file's name changes or goes.

    Returns False if another process holds the lock; with `wait`, take_lock() waits for that
    process.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(directory: Path, seconds: float | None = None) -> Iterator[None]:
    """Create a directory if it is missing, and exclude other callers of locked() from the
    directory.

    Raises VicinalError if another process keeps the directory for `seconds`, by default 1800.
    """
    limit = _LOCK_SECONDS if seconds is None else seconds
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / ".lock"
    # Opened for reading only, because another user may own the file in a shared directory.
    descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + limit
        # The name does not matter, because processes remove the directory only under the lock.
        while not take_lock(descriptor):
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"another command has used {directory} for {limit / 60:.0f} minutes",
                    f"if that command hangs, end it: `fuser {file}` shows its process",
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int, *, follow_symlinks: bool) -> bool:
    """Whether a path still names an open file; another process may have removed the name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=follow_symlinks))
    except FileNotFoundError:
        return False
