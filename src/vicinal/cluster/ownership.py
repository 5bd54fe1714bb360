"""The owners of clusters that commands create for themselves, from the owners' files (owners.py).

A user's command without a cluster's name never selects such a cluster.
"""

import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.files import take_lock
from vicinal.cluster.plan.state import clusters_directory

NUMBERED = re.compile(r"-[0-9]+")
"""The part of a cluster's name after its owner's name."""

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Owner:
    """A command that owns clusters."""

    name: str
    """Start of the names of its clusters."""
    what: str
    """The command's work for people, such as `the study quick`."""
    again: str
    """The command line that continues the work."""
    host: str = ""
    """The command's host, because a home directory may be on several hosts."""


@dataclass(frozen=True)
class Ownership:
    """The owner of a cluster, and whether it runs."""

    what: str
    """The owner's work for people, as in Owner; with its host, if that is another host."""
    runs: bool
    """Whether the command runs or may run: the end of a command on another host is unknown."""


def ownership_of(cluster: str) -> Ownership | None:
    """Return the owner of a cluster or host's part; None if `vicinal up` created the cluster."""
    name = cluster.partition(".")[0]
    for file in owner_files():
        if name.startswith(file.name) and NUMBERED.fullmatch(name, len(file.name)):
            return _ownership(file)
    return None


def check_not_in_use(cluster: str) -> None:
    """Raise VicinalError if a cluster's owner runs, because its results need the cluster."""
    whose = ownership_of(cluster)
    if whose is not None and whose.runs:
        raise VicinalError(
            f"{cluster} belongs to {whose.what}, which runs and needs it",
            "wait for its end, or end it by Ctrl-C, which removes the cluster; "
            f"`vicinal down {cluster} --owned` removes it anyway",
        )


def owners_directory() -> Path:
    """Return the directory of this user's owner files."""
    return clusters_directory().parent / "owners"


def owner_files() -> list[Path]:
    """Return the files of all owners, including ended owners, sorted."""
    with suppress(OSError):
        return sorted(owners_directory().iterdir())
    return []


def _ownership(file: Path) -> Ownership | None:
    """Return the owner in a file; None if the file is gone."""
    try:
        lock = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # The file may be half written, or written by another version.
        owner = read_owner(file, lock) or Owner(
            file.name, "another command", "", socket.gethostname()
        )
        try:
            # Shared, so that commands that check at the same time do not find each other's lock.
            runs = not take_lock(lock, shared=True)
        except OSError:
            runs = True
        if runs:
            return Ownership(owner.what, runs=True)
        if owner.host == socket.gethostname():
            return Ownership(owner.what, runs=False)
        return Ownership(f"{owner.what} on {owner.host}", runs=True)
    finally:
        os.close(lock)


def read_owner(file: Path, lock: int) -> Owner | None:
    """Read an owner's file by the open descriptor `lock`; return None if it is malformed."""
    with suppress(OSError, ValueError, TypeError):
        owner = Owner(**json.loads(os.pread(lock, _MOST_BYTES, 0)))
        return owner if owner.name == file.name else None
    return None
