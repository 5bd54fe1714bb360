"""What a guest sees of a region: ivshmem devices, and how their memory is mapped."""

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
"""From here on the provider refuses a region: SLOW_MEMORY in provider/api/enable.c."""

_VENDOR = 0x1AF4
_DEVICE = 0x1110
_MEMORY = 2
"""The number of the device's memory (BAR) that is shared."""
_INTERRUPTS = 1
"""The number of the one that a doorbell needs (MSI-X) and a plain device lacks."""

_ATTRIBUTES = "sys/kernel/debug/x86/pat_memtype_list"
_COPY = 65536
_PASSES = 4
_MEASUREMENTS = 20
_PAUSE_SECONDS = 0.005
_HEADER = 4096


@dataclass(frozen=True)
class IvshmemDevice:
    """An ivshmem device of QEMU, in the guest that has it."""

    pci: PciDevice
    memory_bytes: int
    doorbell: bool
    """Whether it can interrupt other guests: ivshmem-doorbell, not ivshmem-plain."""

    @property
    def memory(self) -> Path:
        """The file by which its memory is mapped, relative to the host's root."""
        return self.pci.place / f"resource{_MEMORY}"


@dataclass(frozen=True)
class Mapping:
    """What was found out by mapping a device's memory."""

    header: bytes
    """Its first page."""
    slower: float
    """How many times longer reading it takes than reading private memory."""
    attribute: str | None
    """The page attribute in the guest's page table, such as uncached-minus; root alone sees it."""


def read_ivshmem_devices(host: Host) -> Iterator[IvshmemDevice]:
    """Every one of this guest."""
    for device in read_devices(host):
        if (device.vendor, device.device) == (_VENDOR, _DEVICE):
            yield IvshmemDevice(
                pci=device,
                memory_bytes=memory_bytes(host, device, _MEMORY),
                doorbell=memory_bytes(host, device, _INTERRUPTS) > 0,
            )


def map_memory(host: Host, device: IvshmemDevice) -> Mapping:
    """Map a device's memory as the provider does, and read in it; nothing is written.

    Raises OSError where this user may not, or the kernel does not let anybody.
    """
    descriptor = os.open(host.path(device.memory), os.O_RDWR | os.O_CLOEXEC)
    try:
        shared = mmap.mmap(descriptor, device.memory_bytes)
    except ValueError as error:  # Python looks at the file's length first
        raise OSError(errno.EINVAL, str(error)) from None
    finally:
        os.close(descriptor)
    with closing(shared):
        return Mapping(
            header=shared[:_HEADER],
            slower=_measure(shared),
            attribute=_attribute(host, device),
        )


def _measure(shared: mmap.mmap) -> float:
    """The lowest of some measurements; the first one that is below SLOW is enough."""
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
        if attempt:  # the first warms up
            best = min(best, elapsed)
    return max(best, 1e-9)


def _attribute(host: Host, device: IvshmemDevice) -> str | None:
    """The kernel's word for the mapping that there is now."""
    lines = (host.text(device.pci.place / "resource") or "").splitlines()
    first = lines[_MEMORY].split()[0] if len(lines) > _MEMORY and lines[_MEMORY].split() else ""
    try:
        start = int(first, 16)
    except ValueError:
        return None
    for line in (host.text(_ATTRIBUTES) or "").splitlines():
        if re.search(rf"\b0x0*{start:x}-", line):
            # "memtype: [mem 0x...-0x...] uncached-minus"; older: "uncached-minus @ 0x...-0x..."
            word = re.search(r"\b(write-\w+|uncached(?:-minus)?)\b", line)
            return word[1] if word else None
    return None
