"""The PCI devices of a host, from sysfs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vicinal.host.system import Host

DEVICES = Path("sys/bus/pci/devices")

MELLANOX = 0x15B3
"""Vendor of NVIDIA's network cards, ConnectX and BlueField."""

_NETWORK = 0x02
_MEMORY = 0x200
"""Flag in a line of `resource` for memory instead of ports."""


@dataclass(frozen=True)
class PciDevice:
    """A PCI device, or a function of a device."""

    address: str
    """Domain, bus, device and function: 0000:3b:00.1."""
    vendor: int
    device: int
    kind: int
    """The class code, three bytes."""
    driver: str | None
    iommu_group: int | None
    numa_node: int | None
    physical_function: str | None
    """Address of a virtual function's physical function; None for other devices, and inside
    guests."""
    interfaces: tuple[str, ...]
    """The device's network interfaces in this network namespace."""
    rdma_devices: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """The device's directory, relative to the host's root."""
        return DEVICES / self.address

    @property
    def is_network(self) -> bool:
        """Whether the device is a network card, Ethernet or InfiniBand."""
        return self.kind >> 16 == _NETWORK


def read_device(host: Host, address: str) -> PciDevice | None:
    """Return the device at an address; None if there is none."""
    directory = DEVICES / address
    vendor = host.number(directory / "vendor")
    if vendor is None:
        return None
    group = host.link_name(directory / "iommu_group")
    node = host.number(directory / "numa_node")
    return PciDevice(
        address=address,
        vendor=vendor,
        device=host.number(directory / "device") or 0,
        kind=host.number(directory / "class") or 0,
        driver=host.link_name(directory / "driver"),
        iommu_group=int(group) if group is not None and group.isdecimal() else None,
        numa_node=node if node is not None and node >= 0 else None,  # -1: unknown
        physical_function=host.link_name(directory / "physfn"),
        interfaces=tuple(host.names(directory / "net")),
        rdma_devices=tuple(host.names(directory / "infiniband")),
    )


def read_devices(host: Host) -> Iterator[PciDevice]:
    """Yield every device, ordered by address."""
    for address in host.names(DEVICES):
        device = read_device(host, address)
        if device is not None:
            yield device


def memory_bytes(host: Host, device: PciDevice, number: int) -> int:
    """Return the bytes of a device's memory (BAR) with this number; 0 if the device has no such
    memory."""
    lines = (host.text(device.directory / "resource") or "").splitlines()
    try:
        first, last, flags = (int(word, 16) for word in lines[number].split())
    except (IndexError, ValueError):
        return 0
    return last - first + 1 if flags & _MEMORY and last > first else 0
