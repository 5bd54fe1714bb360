"""Where it is kept what was made of each cluster of this user."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.base.directories import state_directory
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock, take_lock
from vicinal.cluster.plan.journal import Journal
from vicinal.host.functions.helper import kept_open

_LOCK_SECONDS = 10.0


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
    """Whether another command changes a cluster now."""
    try:
        directory = os.open(cluster_directory(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two that look at the same time do not take each other for such a command.
        return not take_lock(directory, shared=True)
    finally:
        os.close(directory)


def _lock(directory: Path) -> int:
    """The directory's descriptor, by which it is locked until that is closed."""
    try:
        return lock(
            directory,
            seconds=_LOCK_SECONDS,
            make=lambda: directory.mkdir(mode=0o700, parents=True, exist_ok=True),
        )
    except BlockingIOError:
        raise VicinalError(
            f"another command is at work on the cluster {directory.name}", "wait for its end"
        ) from None
    except OSError as error:
        raise VicinalError(
            f"the directory {directory} cannot be used ({describe_os_error(error)})",
            "let XDG_STATE_HOME name one that you may write to",
        ) from error
