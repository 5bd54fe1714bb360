"""SR-IOV: cards that support virtual functions, their VFs, and the user of each VF."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vicinal.host.pci import MELLANOX, PciDevice, read_device, read_devices
from vicinal.host.system import Host
from vicinal.host.vf.privileged import system as vf_system
from vicinal.host.vf.privileged.system import VFIO
from vicinal.host.vf.sysfs import group_others, holders

_NO_DRIVER_WAY = ("mlx4_core",)
"""Drivers that create VFs by a module parameter instead of sriov_numvfs."""


class Use(StrEnum):
    """How a virtual function is used."""

    FREE = "free"
    """No driver is bound to the VF."""
    RESERVED = "reserved"
    """vfio-pci is bound, and no process has the VF open."""
    GUEST = "guest"
    """A process has the VF open by VFIO, as a virtual machine does."""
    HOST = "host"
    """A network driver of this host is bound to the VF."""


@dataclass(frozen=True)
class VirtualFunction:
    """A virtual function, which can be assigned to a guest or a container."""

    number: int
    device: PciDevice
    use: Use
    holders: tuple[str, ...]
    """Processes that have the VF open by VFIO, if this user may see them: `qemu-system-x86
    (4711)`."""
    group_shared_with: tuple[str, ...]
    """Other devices in the VF's IOMMU group, which must be assigned together with it."""


@dataclass(frozen=True)
class PhysicalFunction:
    """A card, or a port of a card, that supports virtual functions."""

    device: PciDevice
    limit: int | None
    """Greatest number of VFs; None if the firmware shows no SR-IOV."""
    created: int
    by_sysfs: bool
    """Whether the driver creates VFs by sriov_numvfs."""
    vfs: tuple[VirtualFunction, ...]


def read_physical_functions(host: Host) -> Iterator[PhysicalFunction]:
    """Yield every physical function, and cards that could be one if their firmware enabled
    SR-IOV."""
    reader = vf_system.Host()
    reader.sysfs = host.path("sys")
    for device in read_devices(host):
        if device.physical_function is not None:
            continue
        limit = host.number(device.directory / "sriov_totalvfs")
        if limit is None and not _could_have_vfs(host, device):
            continue
        yield PhysicalFunction(
            device=device,
            limit=limit,
            created=host.number(device.directory / "sriov_numvfs") or 0,
            by_sysfs=device.driver not in _NO_DRIVER_WAY,
            vfs=tuple(_vfs(host, reader, device)),
        )


def _could_have_vfs(host: Host, device: PciDevice) -> bool:
    """Whether this is a card of Mellanox, whose firmware hides SR-IOV if SR-IOV is off.

    Always False in a guest, because a virtual function looks the same there.
    """
    return device.vendor == MELLANOX and device.is_network and not host.is_virtual


def _vfs(host: Host, reader: vf_system.Host, parent: PciDevice) -> Iterator[VirtualFunction]:
    for number, address in enumerate(reader.vfs(parent.address)):
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
