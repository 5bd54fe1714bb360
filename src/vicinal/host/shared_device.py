"""Memory that a device shares, ivshmem or /dev/dax, and how the memory is mapped."""

import errno
import mmap
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from vicinal.host.pci import PciDevice, memory_bytes, read_devices
from vicinal.host.system import Host

SLOW = 20.0
"""From this factor on, the provider refuses a region: SLOW_MEMORY in provider/api/enable.c."""

_VENDOR = 0x1AF4
_DEVICE = 0x1110
_MEMORY = 2
"""Number of the shared memory (BAR) of an ivshmem device."""
_INTERRUPTS = 1
"""Number of the BAR for interrupts (MSI-X): ivshmem-doorbell has the BAR, ivshmem-plain does
not."""

_DAX = "sys/bus/dax/devices"
_ATTRIBUTES = "sys/kernel/debug/x86/pat_memtype_list"
_COPY = 65536
_PASSES = 4
_MEASUREMENTS = 20
_PAUSE_SECONDS = 0.005
_HEADER = 4096


@dataclass(frozen=True)
class SharedDevice:
    """Memory that a guest, or a host with CXL memory, may share with other systems."""

    name: str
    """The name in messages."""
    memory: Path
    """The file to map, relative to the host's root."""
    memory_bytes: int
    start: int | None
    """Physical address; None if this user may not read it."""


@dataclass(frozen=True)
class IvshmemDevice(SharedDevice):
    """An ivshmem device of QEMU, seen from its guest."""

    pci: PciDevice
    doorbell: bool
    """Whether the device can interrupt other guests: ivshmem-doorbell instead of ivshmem-plain."""


@dataclass(frozen=True)
class Mapping:
    """Facts about a device's mapped memory."""

    header: bytes
    """The first page of the memory."""
    slower: float
    """Time to read the memory, divided by the time to read private memory."""
    attribute: str | None
    """The page attribute in the guest's page table, such as uncached-minus; only root can read
    it."""


def read_ivshmem_devices(host: Host) -> Iterator[IvshmemDevice]:
    """Yield every ivshmem device of this guest."""
    for device in read_devices(host):
        if (device.vendor, device.device) == (_VENDOR, _DEVICE):
            doorbell = memory_bytes(host, device, _INTERRUPTS) > 0
            kind = "ivshmem-doorbell" if doorbell else "ivshmem-plain"
            yield IvshmemDevice(
                name=f"{device.address}: {kind}",
                memory=device.directory / f"resource{_MEMORY}",
                memory_bytes=memory_bytes(host, device, _MEMORY),
                start=_bar_start(host, device),
                pci=device,
                doorbell=doorbell,
            )


def read_dax_devices(host: Host) -> Iterator[SharedDevice]:
    """Yield every /dev/dax."""
    for name in host.names(_DAX):
        yield SharedDevice(
            name=f"/dev/{name}",
            memory=Path("dev") / name,
            memory_bytes=host.number(f"{_DAX}/{name}/size") or 0,
            start=host.number(f"{_DAX}/{name}/resource"),
        )


def map_memory(host: Host, device: SharedDevice) -> Mapping:
    """Map a device's memory as the provider does, and only read from it.

    Raises OSError if this user may not open the memory, or if the kernel permits nobody to map it.
    """
    descriptor = os.open(host.path(device.memory), os.O_RDWR | os.O_CLOEXEC)
    try:
        shared = mmap.mmap(descriptor, device.memory_bytes)
    except ValueError as error:  # Python checks the file's length first
        raise OSError(errno.EINVAL, str(error)) from None
    finally:
        os.close(descriptor)
    with closing(shared):
        return Mapping(
            header=shared[:_HEADER],
            slower=_measure(shared),
            attribute=_attribute(host, device.start),
        )


def _measure(shared: mmap.mmap) -> float:
    """The lowest of up to 20 measured factors; the first factor below SLOW is enough."""
    length = min(_COPY, len(shared))
    lowest = float("inf")
    with closing(mmap.mmap(-1, length)) as private:
        for attempt in range(_MEASUREMENTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            own = _copy_seconds(private, length)
            lowest = min(lowest, _copy_seconds(shared, length) / own)
            if lowest < SLOW:
                break
    return lowest


def _copy_seconds(memory: mmap.mmap, length: int) -> float:
    best = float("inf")
    for attempt in range(_PASSES):
        start = time.perf_counter()
        memory[:length]
        elapsed = time.perf_counter() - start
        if attempt:  # the first pass warms up the memory
            best = min(best, elapsed)
    return max(best, 1e-9)


def _bar_start(host: Host, device: PciDevice) -> int | None:
    lines = (host.text(device.directory / "resource") or "").splitlines()
    words = lines[_MEMORY].split() if len(lines) > _MEMORY else []
    try:
        return int(words[0], 16) if words else None
    except ValueError:
        return None


def _attribute(host: Host, start: int | None) -> str | None:
    """The kernel's name for the attribute of the current mapping."""
    if not start:
        return None
    for line in (host.text(_ATTRIBUTES) or "").splitlines():
        # "memtype: [mem 0x...-0x...] uncached-minus"; older: "uncached-minus @ 0x...-0x..."
        memory = re.search(r"\b0x([0-9a-f]{1,16})-0x([0-9a-f]{1,16})\b", line)
        word = re.search(r"\b(write-\w+|uncached(?:-minus)?)\b", line)
        if memory and word and int(memory[1], 16) <= start < int(memory[2], 16):
            return word[1]
    return None
