"""What a virtual machine of a cluster is to be: plain values, checked when they are made."""

import re
from dataclasses import dataclass, field

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import HostFunction, Interface, check_name
from vicinal.cluster.vm.hardware import Hardware

_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")


@dataclass(frozen=True)
class Placement:
    """Where on the host the machine runs; numbers are the host's. Empty: anywhere."""

    processors: tuple[frozenset[int], ...] = ()
    """Of each virtual processor."""
    emulator: frozenset[int] = frozenset()
    """Of QEMU's other threads."""
    memory_nodes: frozenset[int] = frozenset()
    """NUMA nodes that its memory comes from."""


@dataclass(frozen=True, kw_only=True)
class DomainSpec(Hardware):
    """A virtual machine. Raises VicinalError for what no hypervisor could make."""

    name: str
    """Unique at this connection."""
    cluster: str
    node: str
    hugepages: bool = False
    placement: Placement = field(default_factory=Placement)
    functions: tuple[HostFunction, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    user: tuple[int, int] | None = None
    """User and group that QEMU is to run as, at a system connection; None: libvirt's choice."""

    def __post_init__(self) -> None:
        for what, name in (("domain", self.name), ("cluster", self.cluster), ("node", self.node)):
            check_name(f"the {what}", name)
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
