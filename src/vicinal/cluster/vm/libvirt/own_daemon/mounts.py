"""Mounts by which the daemon sees its own directories instead of the system's; only it sees them.

The names of the system's directories are compiled into libvirt. A mount needs an existing directory
on the host. So missing directories are created; they stay empty, and are removed when no daemon of
Vicinal has them any more. Each daemon locks them while it lives, because a daemon of another state
directory may use them too. The sticky bit marks directories that Vicinal created. It has no effect
on a directory to which only root may write.
"""

import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock, take_lock

MOUNTS = {
    "settings": Path("/etc/libvirt"),
    "state": Path("/var/lib/libvirt"),
    "cache": Path("/var/cache/libvirt"),
    "messages": Path("/var/log/libvirt"),
    "run": Path("/run/libvirt"),
}
"""Directories of the daemon, and the paths at which the daemon sees them."""

_MADE_BY_US = stat.S_ISVTX


def hold_mount_points() -> list[int]:
    """Create missing directories, and lock all of them; returns the descriptors with the locks.

    Raises VicinalError if a directory is missing and cannot be created.
    """
    return [
        lock(directory, shared=True, seconds=None, make=partial(_make, directory))
        for directory in MOUNTS.values()
    ]


def remove_mount_points() -> bool:
    """Remove the empty directories that a daemon of Vicinal created.

    Returns whether no other daemon has them.
    """
    free = True
    for directory in _directories():
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # it does not exist, or is not a directory
        try:
            if os.fstat(descriptor).st_mode & _MADE_BY_US:
                if take_lock(descriptor):
                    with suppress(OSError):  # it has contents
                        directory.rmdir()
                else:
                    free = False
        finally:
            os.close(descriptor)
    return free


def _directories() -> list[Path]:
    """All directories that may have been created, children before their parents."""
    found = {each for directory in MOUNTS.values() for each in (directory, *directory.parents)}
    return sorted(found, key=lambda directory: len(directory.parts), reverse=True)


def _make(directory: Path) -> None:
    for each in (*reversed(directory.parents), directory):
        try:
            each.mkdir(mode=0o755 | _MADE_BY_US, exist_ok=True)
        except OSError as error:
            raise VicinalError(
                f"the directory {each} cannot be created ({describe_os_error(error)})",
                "create it, or start libvirt's daemon by other means",
            ) from error
