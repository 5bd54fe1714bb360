"""The directories of this user's clusters, with their journals and locks."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.base.directories import state_directory
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock, take_lock
from vicinal.cluster.plan.journal import Journal
from vicinal.host.vf.helper import kept_open

_LOCK_SECONDS = 10.0


def clusters_directory() -> Path:
    """Return the directory of this user's clusters, below the XDG state directory."""
    return state_directory() / "clusters"


def cluster_names() -> list[str]:
    """Return the names of all clusters and hosts' parts with a journal, sorted."""
    directory = clusters_directory()
    if not directory.is_dir():
        return []
    return sorted(each.name for each in directory.iterdir() if (each / "journal").is_file())


def cluster_directory(name: str) -> Path:
    """Return the directory of a cluster's journal and files; the directory may not exist."""
    return clusters_directory() / name


def journal_of(name: str) -> Journal:
    """Return a cluster's journal; it has no entries if the cluster does not exist."""
    return Journal(cluster_directory(name) / "journal")


@contextmanager
def sole_command(name: str) -> Iterator[Path]:
    """Lock a cluster against other commands; yield its directory, which is created if missing.

    If the command is killed, the kernel drops the lock, after the privileged helper has finished
    the command's request. If the journal has no entries at the end, the directory is removed.
    Raises VicinalError if another command holds the lock for 10 s.
    """
    directory = cluster_directory(name)
    held = _lock(directory)
    kept_open.add(held)
    try:
        yield directory
    finally:
        kept_open.discard(held)
        with suppress(VicinalError):
            if not journal_of(name).entries():
                shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def is_worked_on(name: str) -> bool:
    """Whether another command holds a cluster's lock now."""
    try:
        directory = os.open(cluster_directory(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two commands that only check do not find each other's lock.
        return not take_lock(directory, shared=True)
    finally:
        os.close(directory)


def _lock(directory: Path) -> int:
    """Lock the directory; return a descriptor, which holds the lock until it is closed."""
    try:
        return lock(
            directory,
            seconds=_LOCK_SECONDS,
            make=lambda: directory.mkdir(mode=0o700, parents=True, exist_ok=True),
        )
    except BlockingIOError:
        raise VicinalError(
            f"another command works on the cluster {directory.name}", "wait for its end"
        ) from None
    except OSError as error:
        raise VicinalError(
            f"the directory {directory} cannot be used ({describe_os_error(error)})",
            "set XDG_STATE_HOME to a directory that you may write to",
        ) from error
