"""The devices of a virtual machine: plain values, checked when they are made."""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_PCI_PARTS = ("domain", "bus", "slot", "function")


def check_name(what: str, name: str) -> None:
    """Raise VicinalError for a name that libvirt or a file system could misread."""
    if not _NAME.fullmatch(name):
        raise VicinalError(
            f"{what} cannot be called '{name}'",
            "use letters, digits, dots, hyphens and underscores, 63 at most",
        )


# --- the region ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedRegion:
    """A region in /dev/shm, by its name there, as the memory of an ivshmem device (<shmem>).

    It can be detached and attached while the machine runs.
    """

    name: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_name("the region", self.name)
        _check_power_of_two(self.name, self.size_bytes)

    @property
    def path(self) -> Path:
        """The region's file on the host."""
        return Path("/dev/shm") / self.name


@dataclass(frozen=True)
class DoorbellRegion:
    """A region as the memory of an ivshmem device that can interrupt: ivshmem-doorbell (<shmem>).

    The guest gets an IOMMU, without which its kernel lets no program have an interrupt. The server
    (vicinal.cluster.vm.qemu.doorbell) must run when the machine starts, which gets the memory
    from it.
    """

    name: str
    server: Path
    """Its socket."""
    vectors: int
    """Interrupts of the machine; the server's clients have so many."""

    def __post_init__(self) -> None:
        check_name("the region", self.name)


@dataclass(frozen=True)
class FileRegion:
    """A region in a file anywhere, such as on hugetlbfs, as the memory of an ivshmem device.

    libvirt's <shmem> knows /dev/shm alone, so QEMU gets the device past libvirt, which can then
    not detach it.
    """

    path: Path
    size_bytes: int

    def __post_init__(self) -> None:
        _check_power_of_two(str(self.path), self.size_bytes)


@dataclass(frozen=True)
class NvdimmRegion:
    """A region in a file, as a persistent memory module: /dev/dax in a guest, mapped write-back."""

    path: Path
    size_bytes: int

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.size_bytes % (2 << 20):
            raise VicinalError(
                f"a memory module of {self.size_bytes} bytes cannot be made",
                "choose a multiple of 2 MiB",
            )


Region = SharedRegion | DoorbellRegion | FileRegion | NvdimmRegion


def _check_power_of_two(name: str, size_bytes: int) -> None:
    # The memory of a PCI device is; libvirt counts in MiB besides.
    if size_bytes < 1 << 20 or size_bytes & (size_bytes - 1):
        raise VicinalError(
            f"the region {name} is {size_bytes} bytes long, and a PCI device's memory is a power of"
            " two, of 1 MiB at least",
            "create it with --for-guests",
        )


# --- functions of the host -------------------------------------------------------------------


@dataclass(frozen=True)
class HostFunction:
    """A PCI function of the host's, such as an SR-IOV virtual function, given to the machine.

    `address` is what lspci -D shows: 0000:03:00.1.
    """

    address: str

    def __post_init__(self) -> None:
        if not _PCI_ADDRESS.fullmatch(self.address):
            raise VicinalError(
                f"'{self.address}' is no PCI address", "write it as lspci -D does: 0000:03:00.1"
            )

    @property
    def address_parts(self) -> dict[str, str]:
        """Domain, bus, slot and function, as libvirt writes an address."""
        found = _PCI_ADDRESS.fullmatch(self.address)
        assert found is not None
        return {name: f"0x{part}" for name, part in zip(_PCI_PARTS, found.groups(), strict=True)}


def set_function_address(device: Element, function: HostFunction) -> None:
    """Have a device of a domain be another function of the host's."""
    source = device.find("source/address")
    assert source is not None
    source.attrib.update(function.address_parts)


def function_address(device: Element) -> str:
    """PCI address, on the host, of a function that a domain has."""
    source = device.find("source/address")
    found = {} if source is None else source.attrib
    domain, bus, slot, function = (int(found.get(part, "0"), 16) for part in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


# --- network cards ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Bridge:
    """A virtio card on a bridge of the host's; libvirt makes the tap. System connection only."""

    bridge: str
    mac: str


@dataclass(frozen=True)
class Tap:
    """A virtio card on a tap that is there already, made by somebody who may."""

    tap: str
    mac: str


@dataclass(frozen=True)
class Wire:
    """A virtio card joined with that of one other machine of this host by Unix sockets.

    Needs no rights; each names its own socket and the other's. Either may start first.
    """

    own: Path
    other: Path
    mac: str


@dataclass(frozen=True)
class UdpWire:
    """A virtio card joined with that of one machine of another host by UDP, a frame a datagram.

    Needs no rights. Whoever can send datagrams to the port can send frames.
    """

    own: str
    """IPv4 address of this host, which it listens at."""
    other: str
    """That of the other host."""
    port: int
    """On both hosts."""
    mac: str


@dataclass(frozen=True)
class Multicast:
    """A virtio card on a network of any number of machines of this host, by multicast datagrams.

    Needs no rights, but every process of the host may listen and speak there.
    """

    group: str
    port: int
    mac: str


Interface = Bridge | Tap | Wire | UdpWire | Multicast
"""A card of a domain."""


# --- disks -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """A disk image that the machine boots from, or has beside its kernel."""

    file: Path
    format: str = "qcow2"
