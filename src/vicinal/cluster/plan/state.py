"""Where it is kept what was made of each cluster of this user."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.base.directories import state_directory
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.plan.journal import Journal
from vicinal.host.functions.helper import kept_open

_LOCK_SECONDS = 10.0
_POLL_SECONDS = 0.05


def clusters_directory() -> Path:
    """The directory of this user's clusters, where XDG has it."""
    return state_directory() / "clusters"


def cluster_names() -> list[str]:
    """The clusters of which something was made."""
    directory = clusters_directory()
    if not directory.is_dir():
        return []
    return sorted(each.name for each in directory.iterdir() if (each / "journal").is_file())


def cluster_directory(name: str) -> Path:
    """Where a cluster's things are kept; it may not be there."""
    return clusters_directory() / name


def journal_of(name: str) -> Journal:
    """A cluster's journal; without entries where nothing was made."""
    return Journal(cluster_directory(name) / "journal")


@contextmanager
def sole_command(name: str) -> Iterator[Path]:
    """Keep other commands away from a cluster; its directory, which is made if it is missing.

    The kernel drops the lock of a command that is killed, once what that had the privileged helper
    do for it is done. When nothing of the cluster is left in
    the journal at the end, the directory goes too. Raises VicinalError where another command is
    at work for long.
    """
    directory = cluster_directory(name)
    lock = _lock(directory)
    kept_open.add(lock)
    try:
        yield directory
    finally:
        kept_open.discard(lock)
        with suppress(VicinalError):
            if not journal_of(name).entries():
                shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def is_worked_on(name: str) -> bool:
    """Whether another command changes a cluster now."""
    try:
        directory = os.open(cluster_directory(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two that look at the same time do not take each other for such a command.
        fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(directory)
    return False


def _lock(directory: Path) -> int:
    """The directory's descriptor, by which it is locked until that is closed."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue  # another command took it away just now
            raise VicinalError(
                f"the directory {directory} cannot be used ({describe_os_error(error)})",
                "let XDG_STATE_HOME name one that you may write to",
            ) from error
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if directory.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        os.close(lock)
        if time.monotonic() > deadline:
            raise VicinalError(
                f"another command is at work on the cluster {directory.name}", "wait for its end"
            )
        time.sleep(_POLL_SECONDS)
