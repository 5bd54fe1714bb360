"""A cluster as its file describes it, once that was checked."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES


class BackEnd(StrEnum):
    """What a node is made of."""

    CONTAINER = "container"


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
    mounts: tuple[Mount, ...] = ()


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


@dataclass(frozen=True)
class Cluster:
    """All of it."""

    name: str
    nodes: tuple[Node, ...]
    placement: Placement
    region: RegionSettings
    file: Path
    """Where it is described."""
