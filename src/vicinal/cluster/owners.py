"""Clusters that a command makes for itself and takes away in the end, unless it is killed.

Such a command has an owner's file as long as it runs, locked: the kernel drops the lock of a
process that ends, whatever ends it. So the clusters of a file that can be locked are nobody's any
more, and may be taken away; those of any other are left alone. Names of an owner's clusters are its
own name, a dash and a number.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.ownership import NUMBERED, Owner, owner_files, owners_directory, read_owner
from vicinal.cluster.plan.state import cluster_names

_LOCK_SECONDS = 60.0
"""For another command that takes away what was left."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class LeftBehind:
    """What a command that was killed has left."""

    owner: Owner
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        down = " && ".join(f"vicinal down {name}" for name in self.clusters)
        return (
            f"{self.owner.what} was killed and left {', '.join(self.clusters)}: "
            f"`{self.owner.again}` goes on with it, `{down}` takes that away"
        )


@contextmanager
def owning(owner: Owner) -> Iterator[None]:
    """Be the owner of clusters: nobody takes them for left behind meanwhile.

    The file stays at the end where clusters do. Raises VicinalError where it cannot be kept.
    """
    file = owners_directory() / owner.name
    lock = _lock(file)
    try:
        content = json.dumps(asdict(owner) | {"host": socket.gethostname()})
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, content.encode(), 0)
        except OSError as error:
            raise _unusable(file, error) from error
        yield
    finally:
        if not _clusters(owner.name):
            file.unlink(missing_ok=True)
        os.close(lock)


def left_behind() -> list[LeftBehind]:
    """What commands of this user left on this host that were killed. Changes nothing."""
    found = []
    for file in owner_files():
        with _abandoned(file) as owner:
            if owner is not None and (clusters := _clusters(owner.name)):
                found.append(LeftBehind(owner, clusters))
    return found


def take_away_left_behind(say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Take it away; `say` is told of what was, and `warn` of what could not be."""
    from vicinal.cluster.manager import take_down

    for file in owner_files():
        with _abandoned(file) as owner:
            if owner is None:
                continue
            clusters = _clusters(owner.name)
            if clusters:
                say(f"taking away {', '.join(clusters)}: {owner.what} was killed and left that")
            for name in clusters:
                try:
                    take_down(name)
                except VicinalError as error:
                    warn(f"{name}, which {owner.what} left, could not be taken away: {error}")
            if not _clusters(owner.name):
                file.unlink(missing_ok=True)


def _clusters(name: str) -> tuple[str, ...]:
    """Those of an owner, without shares of hosts, which go with them."""
    beginning = len(name)
    return tuple(
        each
        for each in cluster_names()
        if each.startswith(name) and NUMBERED.fullmatch(each, beginning)
    )


@contextmanager
def _abandoned(file: Path) -> Iterator[Owner | None]:
    """The owner whose command has ended, and cannot begin again meanwhile; None: it has not.

    It is None, too, where it ran on another host, and where the file makes no sense.
    """
    try:
        lock = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        owner = None
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Else it is one that was taken away, and the name may be that of another by now.
            if file.stat().st_ino == os.fstat(lock).st_ino:
                owner = read_owner(file, lock)
        yield owner if owner is not None and owner.host == socket.gethostname() else None
    finally:
        os.close(lock)


def _lock(file: Path) -> int:
    """The file's descriptor, by which it is locked until that is closed."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(file, error) from error
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        os.close(lock)
        if time.monotonic() > deadline:
            raise VicinalError(
                f"another command is at work on the clusters of {file.name}", "wait for its end"
            )
        time.sleep(_POLL_SECONDS)


def _unusable(file: Path, error: OSError) -> VicinalError:
    return VicinalError(
        f"{file} cannot be written ({describe_os_error(error)})",
        "make room there, or let XDG_STATE_HOME name a directory that you may write to",
    )
