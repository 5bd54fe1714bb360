"""/dev/shm, which holds regions."""

import os
import re
from collections.abc import Iterator

from vicinal.base.sizes import show_short_size
from vicinal.host.finding import Check, Finding, failed, passed, warned
from vicinal.host.system import Host

_PLACE = "dev/shm"
_LITTLE = 256 << 20
"""Containers have 64 MiB by default, too little for several large regions."""
_TOO_LITTLE = 16 << 20
"""Size of a region for a few ranks."""


def check_shared_memory(host: Host) -> Iterator[Finding]:
    """Report whether /dev/shm is a tmpfs that this user may write to, its size, and its free
    space."""
    try:
        space = os.statvfs(host.path(_PLACE))
    except OSError:
        yield failed(
            "there is no /dev/shm, which holds regions",
            "run `mkdir /dev/shm && mount -t tmpfs tmpfs /dev/shm`",
        )
        return
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    kind = host.mounts.get("/dev/shm")
    memory = _available_memory(host)
    facts = {
        "size_bytes": size,
        "free_bytes": free,
        "filesystem": kind,
        "available_memory_bytes": memory,
    }
    shown = f"/dev/shm: {show_short_size(free)} free of {show_short_size(size)}"
    if memory is not None and memory < free:
        shown += f", but only {show_short_size(memory)} of free memory"
        free = memory
    larger = (
        "make /dev/shm larger: `mount -o remount,size=4G /dev/shm`; start a container with "
        "--shm-size=4g"
    )
    if kind is not None and kind != "tmpfs":
        yield warned(
            f"{shown}, but on {kind} instead of tmpfs: pages may be written to a disk",
            "run `mount -t tmpfs tmpfs /dev/shm`",
            **facts,
        )
    elif not host.may(_PLACE, os.W_OK):
        yield failed(
            f"{shown}, but this user may not write there", "run `chmod 1777 /dev/shm`", **facts
        )
    elif free < _TOO_LITTLE:
        yield failed(
            f"{shown}: too little for a region", f"remove old files there, or {larger}", **facts
        )
    elif free < _LITTLE:
        yield warned(f"{shown}: enough for small regions only", larger, **facts)
    else:
        yield passed(shown, **facts)


def _available_memory(host: Host) -> int | None:
    """Available memory in bytes, caches that the kernel can release included; None if unknown."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", host.text("proc/meminfo") or "", re.M)
    return int(found[1]) * 1024 if found else None


SHARED_MEMORY = Check(
    "shm",
    "shared memory",
    "Size and free space of /dev/shm, which holds regions",
    check_shared_memory,
)
