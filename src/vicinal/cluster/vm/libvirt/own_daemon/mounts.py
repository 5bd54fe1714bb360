"""What the daemon takes for the system's directories is its own, by mounts that it alone sees.

Their names are fixed when libvirt is compiled. The host must have directories of these names for
something to be mounted there: those that are missing are made, stay empty, and go when no daemon of
ours has them any more. Each daemon holds a lock on them while it lives, since another state
directory may have a daemon at the same time. That they are ours is said by their sticky bit, which
means nothing for a directory where root alone may write.
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
"""What is in the daemon's directory, and where it sees that."""

_MADE_BY_US = stat.S_ISVTX


def hold_mount_points() -> list[int]:
    """See that all are there, and keep others from removing them; descriptors that hold them.

    Raises VicinalError where one is missing and cannot be made.
    """
    return [
        lock(place, shared=True, seconds=None, make=partial(_make, place))
        for place in MOUNTS.values()
    ]


def remove_mount_points() -> bool:
    """Remove those that a daemon of ours made, if they are empty.

    Returns whether no other daemon has them.
    """
    free = True
    for place in _places():
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # there is none, or it is not as we make them
        try:
            if os.fstat(descriptor).st_mode & _MADE_BY_US:
                if take_lock(descriptor):
                    with suppress(OSError):  # somebody has put something there
                        place.rmdir()
                else:
                    free = False
        finally:
            os.close(descriptor)
    return free


def _places() -> list[Path]:
    """All that may have been made, each before those that it is in."""
    found = {each for place in MOUNTS.values() for each in (place, *place.parents)}
    return sorted(found, key=lambda place: len(place.parts), reverse=True)


def _make(place: Path) -> None:
    for each in (*reversed(place.parents), place):
        try:
            each.mkdir(mode=0o755 | _MADE_BY_US, exist_ok=True)
        except OSError as error:
            raise VicinalError(
                f"the directory {each} cannot be made ({describe_os_error(error)})",
                "make it, or start libvirt's daemon by other means",
            ) from error
