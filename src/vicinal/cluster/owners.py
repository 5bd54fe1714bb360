"""Clusters that a command makes for itself and takes away in the end, unless it is killed.

Such a command has an owner's file as long as it runs, locked: the kernel drops the lock of a
process that ends, whatever ends it. So the clusters of a file that can be locked are nobody's any
more, and may be taken away; those of any other are left alone. Names of an owner's clusters are its
own name, a dash and a number.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import OWN_FILE, lock
from vicinal.cluster.ownership import NUMBERED, Owner, owner_files, owners_directory, read_owner
from vicinal.cluster.plan.state import cluster_names

_LOCK_SECONDS = 60.0
"""For another command that takes away what was left."""


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
    held = _lock(file)
    try:
        content = json.dumps(asdict(owner) | {"host": socket.gethostname()})
        try:
            os.ftruncate(held, 0)
            os.pwrite(held, content.encode(), 0)
        except OSError as error:
            raise _unusable(file, error) from error
        yield
    finally:
        if not _clusters(owner.name):
            file.unlink(missing_ok=True)
        os.close(held)


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
        held = lock(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        owner = read_owner(file, held)
        yield owner if owner is not None and owner.host == socket.gethostname() else None
    finally:
        os.close(held)


def _lock(file: Path) -> int:
    """The file's descriptor, by which it is locked until that is closed."""
    try:
        return lock(
            file,
            OWN_FILE,
            seconds=_LOCK_SECONDS,
            make=lambda: file.parent.mkdir(mode=0o700, parents=True, exist_ok=True),
        )
    except BlockingIOError:
        raise VicinalError(
            f"another command is at work on the clusters of {file.name}", "wait for its end"
        ) from None
    except OSError as error:
        raise _unusable(file, error) from error


def _unusable(file: Path, error: OSError) -> VicinalError:
    return VicinalError(
        f"{file} cannot be written ({describe_os_error(error)})",
        "make room there, or let XDG_STATE_HOME name a directory that you may write to",
    )
