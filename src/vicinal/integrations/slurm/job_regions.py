"""The regions of Slurm's jobs on this host, each owned by its job's user.

They lie in a directory of their own, which only root writes to: job-ID is the region of job ID,
and job-ID.PID one that process PID is making. The epilog removes what is of its job
(slurm/job_region.c).
"""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_size
from vicinal.region import geometry
from vicinal.region.creation import DEFAULT_SECTION_BYTES, create, default_members
from vicinal.region.locks import is_locked

_NAME = re.compile(r"job-(\d{1,10})(?:\.\d+)?")


def region_of(directory: Path, job: int) -> Path:
    """Where the region of a job is."""
    return directory / f"job-{job}"


def make(
    directory: Path,
    job: int,
    user: int,
    *,
    tasks: int,
    members: int | None = None,
    section_bytes: int = DEFAULT_SECTION_BYTES,
    heap_bytes: int = 0,
    max_bytes: int | None = None,
) -> Path:
    """Make the region of a job, unless it is there; returns where it is.

    It has slots for `tasks` ranks, or `members` of them. Of two that make it at the same time one
    wins, and the other uses that. Raises VicinalError, and leaves nothing, where it would take more
    than `max_bytes`, or cannot be made.
    """
    if members is None:
        members = default_members(tasks, heap=heap_bytes > 0)
    size = geometry.region_bytes(members, section_bytes + heap_bytes)
    if max_bytes is not None and size > max_bytes:
        raise VicinalError(
            f"job {job}: a region of {members} members takes {show_size(size)}, and this cluster "
            f"allows {show_size(max_bytes)}",
            "ask for less with --vicinal=region,members=N, or let an administrator raise max_size",
        )
    own_directory(directory)
    place = region_of(directory, job)
    # Nobody finds it under its name before it is its user's.
    part = directory / f"{place.name}.{os.getpid()}"
    part.unlink(missing_ok=True)
    try:
        create(
            part,
            members=members,
            section_bytes=section_bytes,
            heap_bytes=heap_bytes,
            label=f"slurm job {job}",
        )
        os.chown(part, user, -1)
        with suppress(FileExistsError):
            place.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)
    return place


def own_directory(directory: Path) -> None:
    """Make the directory if need be. Raises VicinalError where others may write to it."""
    with suppress(FileExistsError):
        directory.mkdir(parents=True)
        directory.chmod(0o755)  # whatever Slurm's umask is: users go through it
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise VicinalError(
            f"{directory} is no directory that only this user writes to",
            "remove it, or choose another with `vicinal slurm install --directory`",
        )


def idle_regions(directory: Path) -> dict[Path, int]:
    """The regions that no living process is a member of, and of which job each is."""
    return {path: job for path, job in _listed(directory).items() if not _in_use(path)}


def _listed(directory: Path) -> dict[Path, int]:
    with suppress(FileNotFoundError):
        found = {path: _NAME.fullmatch(path.name) for path in directory.iterdir()}
        return {path: int(match[1]) for path, match in found.items() if match}
    return {}


def _in_use(path: Path) -> bool:
    """Whether a living process is a member; False too for what went away just now."""
    try:
        # Its user may have put anything in it, but not something else in its place.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return is_locked(fd, 0, geometry.MEMBERS_MAX)
    finally:
        os.close(fd)
