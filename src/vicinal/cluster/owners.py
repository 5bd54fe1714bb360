"""Clusters that a command creates for itself, and removes at its end unless it is killed.

While such a command runs, it holds the lock of an owner's file. The kernel drops the lock when the
process ends for any reason. So if the file can be locked, its clusters are abandoned and may be
removed; otherwise they are in use. The names of an owner's clusters are the owner's name, a dash
and a number.
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
"""Time for another command that removes abandoned clusters."""


@dataclass(frozen=True)
class LeftBehind:
    """The clusters that a killed command has left."""

    owner: Owner
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        down = " && ".join(f"vicinal down {name}" for name in self.clusters)
        return (
            f"{self.owner.what} was killed and left {', '.join(self.clusters)}: continue with "
            f"`{self.owner.again}`, or remove the rest with `{down}`"
        )


@contextmanager
def owning(owner: Owner) -> Iterator[None]:
    """Hold the lock of an owner's file, so that the owner's clusters do not count as abandoned.

    The file is removed at the end unless clusters are left. Raises VicinalError if the file cannot
    be locked or written.
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
    """Return what killed commands of this user have left on this host. Changes nothing."""
    found = []
    for file in owner_files():
        with _abandoned(file) as owner:
            if owner is not None and (clusters := _clusters(owner.name)):
                found.append(LeftBehind(owner, clusters))
    return found


def take_away_left_behind(say: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Remove the clusters of killed commands.

    `say` gets a message about removed clusters, and `warn` about each that could not be removed.
    """
    from vicinal.cluster.manager import take_down

    for file in owner_files():
        with _abandoned(file) as owner:
            if owner is None:
                continue
            clusters = _clusters(owner.name)
            if clusters:
                say(f"removing {', '.join(clusters)}, which {owner.what} left when it was killed")
            for name in clusters:
                try:
                    take_down(name)
                except VicinalError as error:
                    warn(f"{name}, which {owner.what} left, could not be removed: {error}")
            if not _clusters(owner.name):
                file.unlink(missing_ok=True)


def _clusters(name: str) -> tuple[str, ...]:
    """Return an owner's clusters, without hosts' parts, which are removed with them."""
    beginning = len(name)
    return tuple(
        each
        for each in cluster_names()
        if each.startswith(name) and NUMBERED.fullmatch(each, beginning)
    )


@contextmanager
def _abandoned(file: Path) -> Iterator[Owner | None]:
    """Yield the owner if its command has ended, with the file locked against a new start.

    Yields None if the command runs, if it ran on another host, or if the file is malformed.
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
    """Lock the file; return a descriptor, which holds the lock until it is closed."""
    try:
        return lock(
            file,
            OWN_FILE,
            seconds=_LOCK_SECONDS,
            make=lambda: file.parent.mkdir(mode=0o700, parents=True, exist_ok=True),
        )
    except BlockingIOError:
        raise VicinalError(
            f"another command works on the clusters of {file.name}", "wait for its end"
        ) from None
    except OSError as error:
        raise _unusable(file, error) from error


def _unusable(file: Path, error: OSError) -> VicinalError:
    return VicinalError(
        f"{file} cannot be written ({describe_os_error(error)})",
        "free space there, or set XDG_STATE_HOME to a directory that you may write to",
    )
