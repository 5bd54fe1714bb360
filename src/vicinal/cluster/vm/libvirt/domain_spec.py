"""The specification of a cluster's virtual machine: plain values, checked on creation."""

import re
from dataclasses import dataclass, field

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import Interface, PciFunction, check_name
from vicinal.cluster.vm.hardware import Hardware

_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")


@dataclass(frozen=True)
class Placement:
    """The host's processors and NUMA nodes that the VM uses. Empty: any."""

    processors: tuple[frozenset[int], ...] = ()
    """Allowed processors of each virtual processor."""
    emulator: frozenset[int] = frozenset()
    """Allowed processors of QEMU's other threads."""
    memory_nodes: frozenset[int] = frozenset()
    """NUMA nodes of its memory."""


@dataclass(frozen=True, kw_only=True)
class DomainSpec(Hardware):
    """A virtual machine. Raises VicinalError for values that no hypervisor accepts."""

    name: str
    """Unique at its libvirt connection."""
    cluster: str
    node: str
    hugepages: bool = False
    placement: Placement = field(default_factory=Placement)
    pci_functions: tuple[PciFunction, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    user: tuple[int, int] | None = None
    """User and group of QEMU at a system connection; None: libvirt chooses."""

    def __post_init__(self) -> None:
        for what, name in (("domain", self.name), ("cluster", self.cluster), ("node", self.node)):
            check_name(f"the {what}", name)
        if self.processors < 1 or self.memory_mib < 64:
            raise VicinalError(
                f"{self.name} would have {self.processors} processors and"
                f" {self.memory_mib} MiB of memory",
                "give it at least one processor and 64 MiB",
            )
        pinned = len(self.placement.processors)
        if pinned not in (0, self.processors):
            raise VicinalError(
                f"{self.name} has {self.processors} processors, and a placement for {pinned}",
                "place all processors, or none",
            )
        for interface in self.interfaces:
            if not _MAC.fullmatch(interface.mac):
                raise VicinalError(
                    f"{interface.mac!r} is not a hardware address",
                    "write it in lower case, such as 52:54:00:00:00:01",
                )
