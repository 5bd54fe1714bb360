"""What a virtual machine of a cluster is to be: plain values, checked when they are made."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")


@dataclass(frozen=True)
class DirectBoot:
    """A kernel and its file system, loaded by the hypervisor itself."""

    kernel: Path
    initrd: Path
    words: tuple[str, ...] = ()
    """More of the kernel's command line; the console is on it already."""


@dataclass(frozen=True)
class Disk:
    """A disk image that the machine boots from, or has beside its kernel."""

    file: Path
    format: str = "qcow2"


@dataclass(frozen=True)
class SharedRegion:
    """A region in /dev/shm, by its name there, as the memory of an ivshmem device (<shmem>).

    It can be detached and attached while the machine runs.
    """

    name: str
    size_bytes: int

    def __post_init__(self) -> None:
        _check_name("the region", self.name)
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
        _check_name("the region", self.name)


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
    def parts(self) -> tuple[str, str, str, str]:
        """Domain, bus, slot and function, in hexadecimal."""
        found = _PCI_ADDRESS.fullmatch(self.address)
        assert found is not None
        domain, bus, slot, function = found.groups()
        return domain, bus, slot, function


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


@dataclass(frozen=True)
class Placement:
    """Where on the host the machine runs; numbers are the host's. Empty: anywhere."""

    processors: tuple[frozenset[int], ...] = ()
    """Of each virtual processor."""
    emulator: frozenset[int] = frozenset()
    """Of QEMU's other threads."""
    memory_nodes: frozenset[int] = frozenset()
    """NUMA nodes that its memory comes from."""


@dataclass(frozen=True)
class DomainSpec:
    """A virtual machine. Raises VicinalError for what no hypervisor could make."""

    name: str
    """Unique at this connection."""
    cluster: str
    node: str
    boot: DirectBoot | Disk
    console: Path
    """File that the machine's console is written to."""
    control: Path | None = None
    """Unix socket of the virtio port that the host gets in by."""
    firmware_files: tuple[tuple[str, Path], ...] = ()
    """Files that the guest can read from QEMU's firmware configuration, by names in opt/."""
    accelerator: Accelerator = Accelerator.TCG
    processors: int = 1
    memory_mib: int = 1024
    hugepages: bool = False
    placement: Placement = field(default_factory=Placement)
    region: Region | None = None
    functions: tuple[HostFunction, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    user: tuple[int, int] | None = None
    """User and group that QEMU is to run as, at a system connection; None: libvirt's choice."""

    def __post_init__(self) -> None:
        for what, name in (("domain", self.name), ("cluster", self.cluster), ("node", self.node)):
            _check_name(f"the {what}", name)
        if self.processors < 1 or self.memory_mib < 64:
            raise VicinalError(
                f"{self.name} would have {self.processors} processors and"
                f" {self.memory_mib} MiB of memory",
                "give it one processor and 64 MiB at least",
            )
        pinned = len(self.placement.processors)
        if pinned not in (0, self.processors):
            raise VicinalError(
                f"{self.name} has {self.processors} processors, and places for {pinned}",
                "place all of them, or none",
            )
        for interface in self.interfaces:
            if not _MAC.fullmatch(interface.mac):
                raise VicinalError(
                    f"'{interface.mac}' is no hardware address",
                    "write it as 52:54:00:00:00:01, in lower case",
                )


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise VicinalError(
            f"{what} cannot be called '{name}'",
            "use letters, digits, dots, hyphens and underscores, 63 at most",
        )


def _check_power_of_two(name: str, size_bytes: int) -> None:
    # The memory of a PCI device is; libvirt counts in MiB besides.
    if size_bytes < 1 << 20 or size_bytes & (size_bytes - 1):
        raise VicinalError(
            f"the region {name} is {size_bytes} bytes long, and a PCI device's memory is a power of"
            " two, of 1 MiB at least",
            "create it with --for-guests",
        )
