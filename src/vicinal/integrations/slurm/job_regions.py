"""The regions of Slurm's jobs on this host; each belongs to its job's user.

The regions lie in a directory that only root writes: job-ID is the region of job ID, and job-ID.PID
is a region that process PID is creating. The epilog removes its job's region (slurm/job_region.c).
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
from vicinal.region.heap_size import default_heap
from vicinal.region.locks import is_locked

_NAME = re.compile(r"job-(\d{1,10})(?:\.\d+)?")


def region_of(directory: Path, job: int) -> Path:
    """The path of a job's region."""
    return directory / f"job-{job}"


def make(
    directory: Path,
    job: int,
    user: int,
    *,
    tasks: int,
    members: int | None = None,
    section_bytes: int = DEFAULT_SECTION_BYTES,
    heap_bytes: int | None = None,
    max_bytes: int | None = None,
) -> Path:
    """Create a job's region if it does not exist; returns its path.

    The region has slots for `tasks` ranks, or `members` slots, and heaps of a default size unless
    `heap_bytes` is given. Heaps count in `max_bytes`, although they are reserved when used. If
    two processes create the region at the same time, one wins, and the other uses the winner's.
    Raises VicinalError, and leaves nothing, if the region would take more than `max_bytes` or
    cannot be created.
    """
    if members is None:
        members = default_members(tasks)
    if heap_bytes is None:
        heap_bytes = default_heap(members, section_bytes, most=max_bytes)
    size = geometry.region_bytes(members, section_bytes + heap_bytes)
    if max_bytes is not None and size > max_bytes:
        raise VicinalError(
            f"job {job}: a region of {members} members takes {show_size(size)}, and this cluster "
            f"allows {show_size(max_bytes)}",
            "request fewer members with --vicinal=region,members=N, or ask an administrator to "
            "raise max_size",
        )
    own_directory(directory)
    region = region_of(directory, job)
    # The region gets its final name only after it belongs to its user.
    part = directory / f"{region.name}.{os.getpid()}"
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
            region.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)
    return region


def own_directory(directory: Path) -> None:
    """Create the directory if needed. Raises VicinalError if others may write to it."""
    with suppress(FileExistsError):
        directory.mkdir(parents=True)
        directory.chmod(0o755)  # with any umask of Slurm: users need to enter the directory
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise VicinalError(
            f"{directory} is not a directory that only this user can write",
            "remove it, or choose another directory with `vicinal slurm install --directory`",
        )


def idle_regions(directory: Path) -> dict[Path, int]:
    """The regions without a live member, and the job of each."""
    return {path: job for path, job in _listed(directory).items() if not _in_use(path)}


def _listed(directory: Path) -> dict[Path, int]:
    with suppress(FileNotFoundError):
        found = {path: _NAME.fullmatch(path.name) for path in directory.iterdir()}
        return {path: int(match[1]) for path, match in found.items() if match}
    return {}


def _in_use(path: Path) -> bool:
    """Whether a live process is a member; also False if the region has just been removed."""
    try:
        # The region's user may have written anything into it, but cannot replace the file.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return is_locked(fd, 0, geometry.MEMBERS_MAX)
    finally:
        os.close(fd)
