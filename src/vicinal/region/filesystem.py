"""The type and the free space of the filesystem that holds a file."""

import mmap
import os
from pathlib import Path

MEMORY_FILESYSTEMS = ("tmpfs", "hugetlbfs")
SPARSE_FILESYSTEMS = (*MEMORY_FILESYSTEMS, "btrfs", "ext4", "xfs")
"""Filesystems that reserve parts of a file, and take them back."""

MAP_WHOLE = mmap.MAP_SHARED | 0x4000  # MAP_NORESERVE, for which Python has no name before 3.13
"""Flags for mapping a whole region. Hugetlbfs then sets no pages aside for sparse heaps."""

_MEMORY = Path("/proc/meminfo")


def filesystem_type(device: int) -> str:
    """Return the type of the filesystem with a device number (st_dev), such as 'tmpfs', or
    'unknown'."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return "unknown"


def advice(path: Path, filesystem: str) -> str | None:
    """Return a warning if a filesystem is unsuited for a region; None if it is suited."""
    if filesystem in MEMORY_FILESYSTEMS:
        return None
    return (
        f"{path} is on {filesystem}, whose pages are written back to a disk: "
        "keep regions on tmpfs (/dev/shm) or hugetlbfs"
    )


def room(directory: Path, filesystem: str, released: int = 0, memory: int = 0) -> int:
    """Return the bytes that a new file can take: the free space, on tmpfs also limited by free
    memory.

    `released` bytes of this filesystem, and `memory` bytes of other memory, count as free.
    """
    statistics = os.statvfs(directory)
    free = statistics.f_bavail * statistics.f_frsize
    # A tmpfs mounted with size=0 has no limit, and reports 0 blocks.
    if filesystem == "tmpfs" and statistics.f_blocks == 0:
        free = _memory("MemTotal")
    if filesystem == "tmpfs":
        free = min(free, _memory("MemAvailable") + _memory("SwapFree") + memory)
    return free + released


def _memory(name: str) -> int:
    """Bytes of this host's memory, by a name of /proc/meminfo.

    Without psutil, because a Slurm job waits until the code that creates its region is loaded.
    """
    for line in _MEMORY.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) << 10
    return 0
