"""What OpenNebula's scheduler has chosen for a VM that has a TOPOLOGY: processors and NUMA nodes.

    TOPOLOGY = [ PIN_POLICY = "CORE", SOCKETS = "1", CORES = "2", THREADS = "1" ]
    NUMA_NODE = [ TOTAL_CPUS = "2", CPUS = "2,3", NODE_ID = "0", MEMORY_NODE_ID = "0", ... ]

The scheduler counts these as taken, and writes them into the VM's document and its domain.
"""

import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.documents import parse, shown

_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}")
_NUMBERS = re.compile(r"[0-9]{1,5}(?:,[0-9]{1,5})*")
_MOST = 1 << 12
"""Of virtual processors; QEMU has fewer."""


@dataclass(frozen=True)
class VirtualNode:
    """A NUMA node as the guest sees it."""

    processors: int
    """So many virtual ones."""
    cpus: tuple[int, ...]
    """The host's for them; none: OpenNebula has chosen none."""
    memory_node: int | None
    """The host's NUMA node that all its memory is from."""


@dataclass(frozen=True)
class Topology:
    """Of one VM."""

    policy: str
    """PIN_POLICY: NONE, THREAD, SHARED or CORE."""
    nodes: tuple[VirtualNode, ...]

    @property
    def memory_nodes(self) -> tuple[int, ...]:
        """The host's NUMA nodes that the VM's memory is from; none: any."""
        return tuple(sorted({n.memory_node for n in self.nodes if n.memory_node is not None}))


def read_topology(document: bytes) -> Topology:
    """That of the VM whose document this is. Raises VicinalError for what OpenNebula writes not."""
    root = parse(document, "the VM's document (vm.xml)", "VM")
    policy = (root.findtext("TEMPLATE/TOPOLOGY/PIN_POLICY") or "NONE").upper()
    nodes = tuple(_node(each) for each in root.iterfind("TEMPLATE/NUMA_NODE"))
    if sum(node.processors for node in nodes) > _MOST:
        raise VicinalError("the VM's NUMA_NODE name too many processors", _REMEDY)
    return Topology(policy, nodes)


_REMEDY = "see that OpenNebula's scheduler wrote it"


def _node(element: Element) -> VirtualNode:
    text = element.findtext("CPUS") or ""
    if text and not _NUMBERS.fullmatch(text):
        raise VicinalError(f"a NUMA_NODE of the VM has the CPUS {shown(text)}", _REMEDY)
    return VirtualNode(
        _number(element, "TOTAL_CPUS") or 0,
        tuple(int(each) for each in text.split(",")) if text else (),
        _number(element, "MEMORY_NODE_ID"),
    )


def _number(element: Element, name: str) -> int | None:
    text = element.findtext(name)
    if not text or text == "-1":
        return None
    if not _NUMBER.fullmatch(text):
        raise VicinalError(f"a NUMA_NODE of the VM has the {name} {shown(text)}", _REMEDY)
    return int(text)
