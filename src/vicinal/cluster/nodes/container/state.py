"""The files of clusters of containers, by which later commands find the clusters.

    BASE/CLUSTER/head.json            the head: its PID, its start time, and the boot of the host
    BASE/CLUSTER/hosts                names and addresses
    BASE/CLUSTER/nodes/NODE/...       the node's specification, and the runtime's files

The directory of a node or cluster is created before all other parts, and removed after them. So
later commands find everything that a killed command left.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import DIRECTORY, Durability, lock, write_atomically


def default_base() -> Path:
    """Return the directory for this user's clusters; it may not exist yet."""
    if os.geteuid() == 0:
        return Path("/run/vicinal-containers")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and os.access(runtime, os.W_OK):
        return Path(runtime, "vicinal-containers")
    return Path(f"/tmp/vicinal-containers-{os.geteuid()}")


@contextmanager
def base_locked(base: Path) -> Iterator[int]:
    """Create and lock the directory for clusters, and yield the lock's descriptor.

    At the end the directory is removed if it is empty. Raises VicinalError if the directory cannot
    be used.
    """
    held = _lock(base)
    try:
        yield held
    finally:
        with suppress(OSError):  # the directory still contains clusters
            base.rmdir()
        os.close(held)


def _lock(base: Path) -> int:
    def check(found: os.stat_result) -> None:
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise VicinalError(
                f"the directory {base} belongs to another user, or other users can write to it",
                "remove it, or name another one",
            )

    try:
        return lock(
            base,
            DIRECTORY | os.O_NOFOLLOW,
            seconds=None,
            make=lambda: base.mkdir(mode=0o700, parents=True, exist_ok=True),
            check=check,
        )
    except OSError as error:
        raise VicinalError(
            f"the directory {base} cannot be used ({describe_os_error(error)})",
            "check its owner and its permissions, or name another directory",
        ) from error


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a file in one step: readers see the old content or the new content."""
    write_atomically(path, json.dumps(values), Durability.NONE, by_several=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the values of write_json(); None if the file does not exist or is incomplete."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return values


def remove_tree(directory: Path) -> None:
    """Remove a directory and its content, if it exists."""
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)
