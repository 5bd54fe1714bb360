"""A cluster as its file describes it, once that was checked."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vicinal.cluster.file.hosts import ClusterHost, Share, share_name
from vicinal.cluster.file.network import Network
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES


class BackEnd(StrEnum):
    """What a node is made of."""

    NATIVE = "native"
    """Nothing: it is this host itself."""
    CONTAINER = "container"
    VM = "vm"


class Policy(StrEnum):
    """Where on the host the nodes' processors are."""

    NONE = "none"
    """The kernel decides."""
    CORE = "core"
    """Each processor of a node is a core of its own."""
    SOCKET = "socket"
    """Each node has a socket to itself, and its processors are cores of that."""
    NUMA = "numa"
    """Likewise a NUMA node."""
    EXPLICIT = "explicit"
    """As the nodes say."""


@dataclass(frozen=True)
class Mount:
    """A directory of the host that a node sees."""

    source: str
    destination: str
    read_only: bool


@dataclass(frozen=True)
class Commands:
    """Lines of shell that root runs in a node, in their order, before anybody else gets in."""

    first_boot: tuple[str, ...] = ()
    """Once, when the node was made."""
    each_boot: tuple[str, ...] = ()
    """Then, and each time that it starts."""

    def __bool__(self) -> bool:
        return bool(self.first_boot or self.each_boot)


@dataclass(frozen=True)
class ImageAdditions:
    """What virtual machines have beside what is in the image of all."""

    packages: tuple[str, ...] = ()
    """Of Debian."""
    files: tuple[tuple[str, str], ...] = ()
    """Paths of this host's files and directories, and where the machines have them."""

    def __bool__(self) -> bool:
        return bool(self.packages or self.files)


@dataclass(frozen=True)
class Node:
    """One node."""

    name: str
    backend: BackEnd
    runtime: str | None
    """Name of a container runtime; None: whichever is found."""
    cpus: int
    pin: tuple[int, ...]
    """Its processors, where the file names them."""
    memory_bytes: int | None
    """The most that a container may use, None without a bound; what a virtual machine has."""
    mounts: tuple[Mount, ...] = ()
    network: Network | None = None
    """None: what its back end gives by itself."""
    hugepages: bool = False
    """Whether a virtual machine's memory is in huge pages."""
    commands: Commands = Commands()
    additions: ImageAdditions = ImageAdditions()
    host: str | None = None
    """Name of the host that has it; None where the file has no hosts: this one."""


@dataclass(frozen=True)
class Placement:
    """How the nodes' processors are chosen."""

    policy: Policy = Policy.NONE
    reserve: int = 0
    """So many cores are left to the host."""


@dataclass(frozen=True)
class RegionSettings:
    """The region that the nodes share."""

    members: int = DEFAULT_MEMBERS
    section_bytes: int = DEFAULT_SECTION_BYTES
    heap_bytes: int = 0
    device: RegionDevice = RegionDevice.IVSHMEM
    """What virtual machines have it as."""


@dataclass(frozen=True)
class Cluster:
    """All of it."""

    name: str
    nodes: tuple[Node, ...]
    placement: Placement
    region: RegionSettings | None
    """None: its nodes share none, and talk over their network."""
    file: Path
    """Where it is described."""
    hypervisor: str | None = None
    """URI of the libvirt that makes virtual machines; None: the one that is usual for this user."""
    hosts: tuple[ClusterHost, ...] = ()
    """The hosts that have its nodes; none: all of it is on this one."""
    port: int | None = None
    """First UDP port of the wires between machines of different hosts, where the file says it."""
    text: str = ""
    """The file as it is written."""
    share: Share | None = None
    """Set where this is one host's share of a cluster."""

    @property
    def kept_as(self) -> str:
        """The name under which it is kept what was made of it on this host."""
        return self.name if self.share is None else share_name(self.name, self.share.host)

    def of(self, backend: BackEnd) -> tuple[Node, ...]:
        """The nodes of a kind, in their order."""
        return tuple(node for node in self.nodes if node.backend is backend)
