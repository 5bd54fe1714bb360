"""The checked content of a cluster file."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vicinal.cluster.file.hosts import ClusterHost, HostPart, host_part_name
from vicinal.cluster.file.network import Network
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES


class BackEnd(StrEnum):
    """The kind of a node."""

    HOST = "host"
    """The node is the host itself."""
    CONTAINER = "container"
    VM = "vm"


class Policy(StrEnum):
    """How the host's processors are assigned to nodes."""

    NONE = "none"
    """The kernel decides."""
    CORE = "core"
    """Each processor of a node is a core of its own."""
    SOCKET = "socket"
    """Each node has a socket to itself, and its processors are cores of this socket."""
    NUMA = "numa"
    """Each node has a NUMA node to itself, and its processors are cores of this NUMA node."""
    EXPLICIT = "explicit"
    """The processors that the `pin` of each node names."""


@dataclass(frozen=True)
class Mount:
    """A directory of the host that a container sees."""

    source: str
    destination: str
    read_only: bool


@dataclass(frozen=True)
class Commands:
    """Shell lines that root runs in a node, in order, before users can enter the node."""

    first_boot: tuple[str, ...] = ()
    """Run once, after the node was created."""
    each_boot: tuple[str, ...] = ()
    """Run at each start of the node, at the first start after `first_boot`."""

    def __bool__(self) -> bool:
        return bool(self.first_boot or self.each_boot)


@dataclass(frozen=True)
class ImageAdditions:
    """Additions to the common image of virtual machines."""

    packages: tuple[str, ...] = ()
    """Names of Debian packages."""
    files: tuple[tuple[str, str], ...] = ()
    """Files and directories: (path on this host, path in the VMs)."""

    def __bool__(self) -> bool:
        return bool(self.packages or self.files)


@dataclass(frozen=True)
class Node:
    """A node of the file."""

    name: str
    backend: BackEnd
    runtime: str | None
    """Name of a container runtime; None: the first that is installed."""
    cpus: int
    """Number of processors."""
    pin: tuple[int, ...]
    """Numbers of the node's processors; empty unless the file names them."""
    memory_bytes: int | None
    """A VM's memory, or a container's limit; None: no limit."""
    mounts: tuple[Mount, ...] = ()
    network: Network | None = None
    """None: only the network that the node's back end provides by default."""
    hugepages: bool = False
    """Whether a VM's memory is in huge pages."""
    commands: Commands = Commands()
    additions: ImageAdditions = ImageAdditions()
    host: str | None = None
    """Name of the node's host; None, this host, if the file names no hosts."""


@dataclass(frozen=True)
class Placement:
    """How the nodes' processors are chosen."""

    policy: Policy = Policy.NONE
    reserve: int = 0
    """Number of cores that are left to the host."""


@dataclass(frozen=True)
class RegionSettings:
    """Settings of the region that the nodes share."""

    members: int = DEFAULT_MEMBERS
    section_bytes: int = DEFAULT_SECTION_BYTES
    heap_bytes: int | None = None
    """None: the default of vicinal.region.heap_size."""
    device: RegionDevice = RegionDevice.IVSHMEM
    """The device by which VMs have the region."""


@dataclass(frozen=True)
class Cluster:
    """The content of a cluster file, or one host's part of it."""

    name: str
    nodes: tuple[Node, ...]
    placement: Placement
    region: RegionSettings | None
    """None: the nodes share no region, and communicate over their network."""
    file: Path
    """The cluster file."""
    hypervisor: str | None = None
    """URI of the libvirt that creates VMs; None: the default libvirt of this user."""
    hosts: tuple[ClusterHost, ...] = ()
    """The hosts of the nodes; empty: the whole cluster is on this host."""
    port: int | None = None
    """First UDP port of the wires between VMs of different hosts; None unless the file sets it."""
    text: str = ""
    """The text of the file."""
    host_part: HostPart | None = None
    """Set if this object is one host's part of a cluster."""

    @property
    def kept_as(self) -> str:
        """The name under which this host stores the journal of the cluster or of its part."""
        return (
            self.name if self.host_part is None else host_part_name(self.name, self.host_part.host)
        )

    def of(self, backend: BackEnd) -> tuple[Node, ...]:
        """Return the nodes of a kind, in the file's order."""
        return tuple(node for node in self.nodes if node.backend is backend)
