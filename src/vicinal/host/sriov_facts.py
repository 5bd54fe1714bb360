"""SR-IOV: cards that can be divided into functions, the functions, and who uses each."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vicinal.host.functions.privileged import system as functions
from vicinal.host.functions.privileged.system import VFIO
from vicinal.host.functions.sysfs import group_others, holders
from vicinal.host.pci import MELLANOX, PciDevice, read_device, read_devices
from vicinal.host.system import Host

_NO_DRIVER_WAY = ("mlx4_core",)
"""Drivers that make functions by a parameter when they are loaded, and not by sriov_numvfs."""


class Use(StrEnum):
    """What a virtual function is being used for."""

    FREE = "free"
    """No driver has it."""
    RESERVED = "reserved"
    """vfio-pci has it, and no process does."""
    GUEST = "guest"
    """A process has it by VFIO, which is how a virtual machine gets a device."""
    HOST = "host"
    """A network driver of this host has it."""


@dataclass(frozen=True)
class VirtualFunction:
    """A function that can be given away."""

    number: int
    device: PciDevice
    use: Use
    holders: tuple[str, ...]
    """Processes that have it by VFIO, as far as this user may see: `qemu-system-x86 (4711)`."""
    group_shared_with: tuple[str, ...]
    """Other devices that are in its IOMMU group, and would have to go with it."""


@dataclass(frozen=True)
class PhysicalFunction:
    """A card, or a port of one, that can have virtual functions."""

    device: PciDevice
    limit: int | None
    """How many it can have; None where the firmware shows no SR-IOV at all."""
    created: int
    by_sysfs: bool
    """Whether the driver makes functions by sriov_numvfs."""
    functions: tuple[VirtualFunction, ...]


def read_physical_functions(host: Host) -> Iterator[PhysicalFunction]:
    """Every one of this host; also cards that could be one but for their firmware's settings."""
    reader = functions.Host()
    reader.sysfs = host.path("sys")
    for device in read_devices(host):
        if device.physical_function is not None:
            continue
        limit = host.number(device.place / "sriov_totalvfs")
        if limit is None and not _could_have_functions(host, device):
            continue
        yield PhysicalFunction(
            device=device,
            limit=limit,
            created=host.number(device.place / "sriov_numvfs") or 0,
            by_sysfs=device.driver not in _NO_DRIVER_WAY,
            functions=tuple(_functions(host, reader, device)),
        )


def _could_have_functions(host: Host, device: PciDevice) -> bool:
    """Whether this is a card of Mellanox, whose firmware hides SR-IOV where it is off.

    In a guest it may be a virtual function, which looks the same from there.
    """
    return device.vendor == MELLANOX and device.is_network and not host.is_virtual


def _functions(host: Host, reader: functions.Host, parent: PciDevice) -> Iterator[VirtualFunction]:
    for number, address in enumerate(reader.functions(parent.address)):
        device = read_device(host, address)
        if device is not None:
            vfio = device.driver == VFIO
            programs = tuple(holders(reader, address, host.path("proc"))) if vfio else ()
            yield VirtualFunction(
                number=number,
                device=device,
                use=_use(device, opened=bool(programs or reader.use(address))),
                holders=programs,
                group_shared_with=group_others(reader, address),
            )


def _use(device: PciDevice, *, opened: bool) -> Use:
    if device.driver is None:
        return Use.FREE
    if device.driver != VFIO:
        return Use.HOST
    return Use.GUEST if opened else Use.RESERVED
