"""The snapshots that are kept for this user. Each is a directory, which appears only complete.

memory   the guest's memory as a sparse file of the same size; each guest maps it privately
state    the rest of the VM's state

A snapshot is valid on this host until the host reboots. A user who can write to a snapshot controls
all guests that start from it. So only files that nobody but this user can access are accepted.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.cluster.vm.image.building import guests_directory

_MOST_KEPT = 4
_MEMORY, _STATE = "memory", "state"
_OWN_DIRECTORY = 0o700
_OWN_FILE = 0o600


@dataclass(frozen=True)
class Snapshot:
    """The two open files of a snapshot."""

    memory: int
    state: int


@dataclass(frozen=True)
class StoredSnapshot:
    """A kept snapshot."""

    key: str
    path: Path
    size: int
    """Size on disk in bytes."""
    used: float
    """Time when a guest last started from it, in seconds since the epoch."""


Save = Callable[[int, int], None]
"""Writes a snapshot to two open files: memory and state."""


def snapshots_directory() -> Path:
    """The directory of this user's snapshots."""
    return guests_directory() / f"snapshots-{os.geteuid()}"


@contextmanager
def opened(key: str) -> Iterator[Snapshot | None]:
    """The snapshot of a key, or None. Raises VicinalError if other users could change it."""
    path = snapshots_directory() / key
    files: list[int] = []
    try:
        try:
            directory = _open_own(snapshots_directory(), os.O_DIRECTORY)
            files.append(directory)
            inner = _open_own(path, os.O_DIRECTORY, key, directory)
            files.append(inner)
            memory = _open_own(path / _MEMORY, os.O_RDWR, _MEMORY, inner)
            files.append(memory)
            state = _open_own(path / _STATE, os.O_RDONLY, _STATE, inner)
            files.append(state)
        except FileNotFoundError:
            yield None
            return
        os.utime(inner)
        yield Snapshot(memory, state)
    finally:
        for file in files:
            os.close(file)


def make(key: str, memory_bytes: int, room: int, save: Save) -> bool:
    """Make the snapshot of a key unless it exists; returns whether it exists.

    If two processes make it at the same time, the second finds it. `room` is its maximum size on
    disk in bytes. Returns False if there is less room, or the directory is not writable.
    """
    directory = snapshots_directory()
    try:
        directory.mkdir(mode=_OWN_DIRECTORY, parents=True, exist_ok=True)
        os.close(_open_own(directory, os.O_DIRECTORY))
    except OSError:
        return False
    with locked(directory):
        with opened(key) as there:
            if there is not None:
                return True
        _remove_old(directory)
        if shutil.disk_usage(directory).free < room:
            return False
        part = directory / f"{key}.part"
        part.mkdir(mode=_OWN_DIRECTORY)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with ExitStack() as files:
                memory, state = (
                    files.enter_context(os.fdopen(os.open(part / name, flags, _OWN_FILE), "rb"))
                    for name in (_MEMORY, _STATE)
                )
                os.ftruncate(memory.fileno(), memory_bytes)
                save(memory.fileno(), state.fileno())
            part.rename(directory / key)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return True


def stored() -> list[StoredSnapshot]:
    """All snapshots of this user."""
    found = []
    for path in snapshots_directory().glob("*/"):
        with suppress(FileNotFoundError):  # it was removed just now
            # The memory is mostly holes.
            size = sum(512 * each.stat().st_blocks for each in path.iterdir())
            found.append(StoredSnapshot(path.name, path, size, path.stat().st_mtime))
    return found


def remove(keys: Iterable[str]) -> None:
    """Remove snapshots by key. Guests that started from a removed snapshot run on."""
    directory = snapshots_directory()
    if not directory.is_dir():
        return
    os.close(_open_own(directory, os.O_DIRECTORY))
    with locked(directory):
        for key in keys:
            shutil.rmtree(directory / key, ignore_errors=True)


def _open_own(path: Path, flags: int, name: str | None = None, above: int | None = None) -> int:
    """Open a file that only this user can access. Raises FileNotFoundError or VicinalError."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        opened_file = os.open(name or path, flags, dir_fd=above)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _foreign(path) from error
    status = os.fstat(opened_file)
    kind = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
    if not kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(opened_file)
        raise _foreign(path)
    return opened_file


def _foreign(path: Path) -> VicinalError:
    return VicinalError(
        f"{path} must belong to this user only: other users could change a snapshot there",
        "remove it; Vicinal makes a new one",
    )


def _remove_old(directory: Path) -> None:
    """Remove incomplete snapshots of killed processes, and old ones. Running guests keep theirs."""
    found = []
    for each in directory.iterdir():
        if each.name.endswith(".part"):
            shutil.rmtree(each, ignore_errors=True)
        elif each.name != ".lock":
            with suppress(OSError):
                found.append((each.stat().st_mtime, each))
    for _, each in sorted(found)[: -(_MOST_KEPT - 1)]:
        shutil.rmtree(each, ignore_errors=True)
