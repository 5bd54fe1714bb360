"""What is written down of clusters of containers, so that later commands find them.

    BASE/CLUSTER/head.json            the head: process id, when it started, since which boot
    BASE/CLUSTER/hosts                names and addresses
    BASE/CLUSTER/nodes/NODE/...       what was asked for, and the runtime's files

A node's directory is made before anything else of it and removed last, and a cluster's as well:
so what a killed command left can be found.
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
    """The directory for this user's clusters; it need not exist."""
    if os.geteuid() == 0:
        return Path("/run/vicinal-containers")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and os.access(runtime, os.W_OK):
        return Path(runtime, "vicinal-containers")
    return Path(f"/tmp/vicinal-containers-{os.geteuid()}")


@contextmanager
def base_locked(base: Path) -> Iterator[int]:
    """Make the directory, keep others out of it, and give the lock's descriptor.

    At the end the directory goes if it is empty. Raises VicinalError where it cannot be had.
    """
    held = _lock(base)
    try:
        yield held
    finally:
        with suppress(OSError):  # clusters are in it
            base.rmdir()
        os.close(held)


def _lock(base: Path) -> int:
    def check(found: os.stat_result) -> None:
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise VicinalError(
                f"the directory {base} is not this user's alone", "remove it, or name another one"
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
            "see who made it, or name another one",
        ) from error


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a file so that others see all of it or nothing."""
    write_atomically(path, json.dumps(values), Durability.NONE, by_several=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """What write_json() wrote; None where that is not there."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return values


def remove_tree(directory: Path) -> None:
    """Remove a directory with all in it; that it is not there is no error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)
