"""Whose a cluster is that a command made for itself, by its owner's file: see owners.py.

A command of a user that was called without a name never means such a cluster.
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
"""What follows an owner's name in the name of its cluster."""

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Owner:
    """A command and its clusters."""

    name: str
    """What the names of its clusters begin with."""
    what: str
    """For people: `the study quick`."""
    again: str
    """The command line that goes on with it."""
    host: str = ""
    """Where it runs: users may have one home directory on several hosts."""


@dataclass(frozen=True)
class Ownership:
    """Whose a cluster is that a command made for itself."""

    what: str
    """For people, as Owner has it."""
    runs: bool
    """Whether that command runs, or may: one of another host is not known to have ended."""


def ownership_of(cluster: str) -> Ownership | None:
    """Whose a cluster is, or a host's share of it; None where `vicinal up` made it."""
    name = cluster.partition(".")[0]
    for file in owner_files():
        if name.startswith(file.name) and NUMBERED.fullmatch(name, len(file.name)):
            return _ownership(file)
    return None


def check_not_in_use(cluster: str) -> None:
    """Raise VicinalError for a cluster of a command that runs, which would be void without it."""
    whose = ownership_of(cluster)
    if whose is not None and whose.runs:
        raise VicinalError(
            f"{cluster} belongs to {whose.what}, which runs, and is void without it",
            "wait for its end, or end it by Ctrl-C, which takes the cluster away; "
            f"`vicinal down {cluster} --owned` does so all the same",
        )


def owners_directory() -> Path:
    """Where the files of this user's owners are."""
    return clusters_directory().parent / "owners"


def owner_files() -> list[Path]:
    """The files of all owners, those too that ended."""
    with suppress(OSError):
        return sorted(owners_directory().iterdir())
    return []


def _ownership(file: Path) -> Ownership | None:
    """None where the file is gone."""
    try:
        lock = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # Of an owner that is just writing its file, or of another version, no more is known.
        owner = read_owner(file, lock) or Owner(
            file.name, "another command", "", socket.gethostname()
        )
        try:
            # Shared: others that look at the same time do not take us for the owner.
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
    """What is in an owner's file, of which `lock` is open; None for what makes no sense."""
    with suppress(OSError, ValueError, TypeError):
        owner = Owner(**json.loads(os.pread(lock, _MOST_BYTES, 0)))
        return owner if owner.name == file.name else None
    return None
