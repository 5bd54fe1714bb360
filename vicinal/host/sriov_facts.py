"""SR-IOV: cards that can be divided into functions, the functions, and who uses each."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from vicinal.host.pci import MELLANOX, PciDevice, read_device, read_devices
from vicinal.host.system import Host

VFIO = "vfio-pci"

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
    """Processes that have it by VFIO, as far as this user may see: `qemu-system-x86[4711]`."""
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
    holders = _vfio_holders(host)
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
            functions=tuple(_functions(host, device, holders)),
        )


def _could_have_functions(host: Host, device: PciDevice) -> bool:
    """Whether this is a card of Mellanox, whose firmware hides SR-IOV where it is off.

    In a guest it may be a virtual function, which looks the same from there.
    """
    return device.vendor == MELLANOX and device.is_network and not host.is_virtual


def _functions(
    host: Host, parent: PciDevice, holders: Mapping[str, tuple[str, ...]]
) -> Iterator[VirtualFunction]:
    for name in host.names(parent.place):
        match = re.fullmatch(r"virtfn(\d+)", name)
        address = host.link_name(parent.place / name) if match else None
        device = read_device(host, address) if address is not None else None
        if match and device is not None:
            files = [f"/dev/vfio/{device.iommu_group}"]
            files += [f"/dev/vfio/devices/{each}" for each in host.names(device.place / "vfio-dev")]
            own = tuple(dict.fromkeys(who for file in files for who in holders.get(file, ())))
            yield VirtualFunction(
                number=int(match[1]),
                device=device,
                use=_use(host, device, own),
                holders=own if device.driver == VFIO else (),
                group_shared_with=_others_in_group(host, device),
            )


def _use(host: Host, device: PciDevice, holders: tuple[str, ...]) -> Use:
    if device.driver is None:
        return Use.FREE
    if device.driver != VFIO:
        return Use.HOST
    # Whose it is only shows to that user and to root; that it is enabled, to all.
    opened = bool(holders) or bool(host.number(device.place / "enable"))
    return Use.GUEST if opened else Use.RESERVED


def _others_in_group(host: Host, device: PciDevice) -> tuple[str, ...]:
    if device.iommu_group is None:
        return ()
    members = host.names(f"sys/kernel/iommu_groups/{device.iommu_group}/devices")
    return tuple(each for each in members if each != device.address)


def _vfio_holders(host: Host) -> dict[str, tuple[str, ...]]:
    """The files of VFIO, each to the processes that have it open, as far as this user may see."""
    found: dict[str, tuple[str, ...]] = {}
    if not host.exists("dev/vfio"):
        return found
    for process in host.names("proc"):
        if not process.isdecimal():
            continue
        name = host.text(f"proc/{process}/comm") or "a process"
        for descriptor in host.names(f"proc/{process}/fd"):
            target = host.link(f"proc/{process}/fd/{descriptor}")
            if target is not None and target.startswith("/dev/vfio/"):
                found[target] = (*found.get(target, ()), f"{name}[{process}]")
    return found
