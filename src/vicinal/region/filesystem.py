"""The type and the free space of the filesystem that holds a file."""

import mmap
import os
from pathlib import Path

MEMORY_FILESYSTEMS = ("tmpfs", "hugetlbfs")
SPARSE_FILESYSTEMS = (*MEMORY_FILESYSTEMS, "btrfs", "ext4", "xfs")
"""Filesystems that reserve parts of a file, and take them back."""

MAP_WHOLE = mmap.MAP_SHARED | 0x4000  # MAP_NORESERVE, for which Python has no name before 3.13
"""Flags for mapping a whole region. Hugetlbfs then sets no pages aside for sparse heaps."""

_MAGIC = {
    0x01021994: "tmpfs",
    0x958458F6: "hugetlbfs",
    0x9123683E: "btrfs",
    0xEF53: "ext4",
    0x58465342: "xfs",
}
"""From linux/magic.h. Older relatives of ext4 have its number."""

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


def filesystem_of(file: int | Path) -> str:
    """Return the type of the filesystem of a directory or an open file, or 'unknown'.

    The mount may be in another mount namespace, as those of a job's nodes are.
    """
    status = os.fstat(file) if isinstance(file, int) else file.stat()
    found = filesystem_type(status.st_dev)
    return _type_by_magic(file) if found == "unknown" else found


def _type_by_magic(file: int | Path) -> str:
    import ctypes  # loaded here, because only regions in another mount namespace need it

    fd = file if isinstance(file, int) else os.open(file, os.O_PATH | os.O_CLOEXEC)
    try:
        buffer = ctypes.create_string_buffer(256)  # struct statfs begins with f_type
        if ctypes.CDLL(None).fstatfs(fd, buffer) != 0:
            return "unknown"
    finally:
        if fd != file:
            os.close(fd)
    magic = ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
    return _MAGIC.get(magic, "unknown")


def advice(path: Path, filesystem: str) -> str | None:
    """Return a warning if a filesystem is unsuited for a region; None if it is suited."""
    if filesystem in MEMORY_FILESYSTEMS:
        return None
    return (
        f"{path} is on {filesystem}, whose pages are written back to a disk: "
        "keep regions on tmpfs (/dev/shm) or hugetlbfs"
    )


def room(place: Path | int, filesystem: str, released: int = 0, memory: int = 0) -> int:
    """Return the bytes that a new file can take: the free space, on tmpfs also limited by free
    memory.

    `place` is the file's directory, or an open file there. `released` bytes of this filesystem, and
    `memory` bytes of other memory, count as free.
    """
    statistics = os.statvfs(place)
    free = statistics.f_bavail * statistics.f_frsize
    # A tmpfs mounted with size=0 has no limit, and reports 0 blocks, as that of memfds does.
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
