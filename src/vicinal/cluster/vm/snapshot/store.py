"""The snapshots that are kept for this user: a directory each, there whole or not at all.

memory   the guest's memory, as large as that and mostly holes; guests map it, each for itself
state    what else there is of a machine

They hold for this host until it is booted anew. Whoever could write to one could do anything in the
guests of whom starts from it: so only what is this user's alone is taken.
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
    """The two files of one, open."""

    memory: int
    state: int


@dataclass(frozen=True)
class StoredSnapshot:
    """One that is kept."""

    key: str
    place: Path
    size: int
    """Bytes on disk."""
    used: float
    """When a guest was last started from it, in seconds since the epoch."""


Save = Callable[[int, int], None]
"""Writes a snapshot to two open files: the memory's and the state's."""


def snapshots_directory() -> Path:
    """Where they are, of this user."""
    return guests_directory() / f"snapshots-{os.geteuid()}"


@contextmanager
def opened(key: str) -> Iterator[Snapshot | None]:
    """The snapshot of that key, if there is one. Raises VicinalError for one that is not ours."""
    place = snapshots_directory() / key
    files: list[int] = []
    try:
        try:
            directory = _open_own(snapshots_directory(), os.O_DIRECTORY)
            files.append(directory)
            inner = _open_own(place, os.O_DIRECTORY, key, directory)
            files.append(inner)
            memory = _open_own(place / _MEMORY, os.O_RDWR, _MEMORY, inner)
            files.append(memory)
            state = _open_own(place / _STATE, os.O_RDONLY, _STATE, inner)
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
    """Make the snapshot of that key, unless it is there; whether it is.

    Of two that make it at the same time the second finds it. `room` is what it may take on disk:
    False where there is less, or nothing can be written.
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
    """All that are kept for this user."""
    found = []
    for place in snapshots_directory().glob("*/"):
        with suppress(FileNotFoundError):  # it was removed just now
            # The memory is mostly holes.
            size = sum(512 * each.stat().st_blocks for each in place.iterdir())
            found.append(StoredSnapshot(place.name, place, size, place.stat().st_mtime))
    return found


def remove(keys: Iterable[str]) -> None:
    """Remove snapshots by their keys. Guests that were started from one run on."""
    directory = snapshots_directory()
    if not directory.is_dir():
        return
    os.close(_open_own(directory, os.O_DIRECTORY))
    with locked(directory):
        for key in keys:
            shutil.rmtree(directory / key, ignore_errors=True)


def _open_own(path: Path, flags: int, name: str | None = None, above: int | None = None) -> int:
    """Open what only this user can write to. Raises FileNotFoundError, or VicinalError."""
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
        f"{path} is to be this user's alone, and is not: a snapshot there may be anybody's",
        "remove it; it is made anew",
    )


def _remove_old(directory: Path) -> None:
    """Take away what a maker that was killed left, and all but the newest. Guests keep theirs."""
    found = []
    for each in directory.iterdir():
        if each.name.endswith(".part"):
            shutil.rmtree(each, ignore_errors=True)
        elif each.name != ".lock":
            with suppress(OSError):
                found.append((each.stat().st_mtime, each))
    for _, each in sorted(found)[: -(_MOST_KEPT - 1)]:
        shutil.rmtree(each, ignore_errors=True)
