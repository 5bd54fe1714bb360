"""What kind of filesystem a file lies on, and how much room it has."""

import os
from pathlib import Path

MEMORY_FILESYSTEMS = ("tmpfs", "hugetlbfs")
_MEMORY = Path("/proc/meminfo")


def filesystem_type(device: int) -> str:
    """The type of the filesystem with a device number (st_dev), such as 'tmpfs'."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return "unknown"


def advice(path: Path, filesystem: str) -> str | None:
    """What to tell somebody who keeps a region there, or None if it is a good place."""
    if filesystem in MEMORY_FILESYSTEMS:
        return None
    return (
        f"{path} is on {filesystem}, whose pages are written back to a disk: "
        "keep regions on tmpfs (/dev/shm) or hugetlbfs"
    )


def room(directory: Path, filesystem: str, released: int = 0, memory: int = 0) -> int:
    """The bytes that a new file can take: what is free, and on tmpfs also in memory.

    `released` bytes there are to be free first, and `memory` elsewhere.
    """
    statistics = os.statvfs(directory)
    free = statistics.f_bavail * statistics.f_frsize
    # A tmpfs mounted with size=0 has no limit, and says that it has no blocks at all.
    if filesystem == "tmpfs" and statistics.f_blocks == 0:
        free = _memory("MemTotal")
    if filesystem == "tmpfs":
        free = min(free, _memory("MemAvailable") + _memory("SwapFree") + memory)
    return free + released


def _memory(name: str) -> int:
    """Bytes of this host's memory, by their name in /proc/meminfo.

    Not by psutil: a job of Slurm's waits until what makes its region has been loaded.
    """
    for line in _MEMORY.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) << 10
    return 0
