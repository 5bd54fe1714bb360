"""Processors and NUMA nodes that a domain names: numbers of the host that it was made for.

libvirt has them in the domain wherever that goes. So the host that a VM is restored on, or moves
to, is asked beforehand whether it has these, and its region is put where its memory will be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.system import Host
from vicinal.host.topology import NumaNode, parse_cpu_list, read_cpus, read_nodes, show_cpu_list
from vicinal.integrations.opennebula.documents import parse
from vicinal.integrations.opennebula.reporting import log

_PINS = ("cputune/vcpupin", "cputune/emulatorpin")
_MEMORY = ("numatune/memory", "numatune/memnode")


@dataclass(frozen=True)
class Placement:
    """Of one VM."""

    cpus: tuple[int, ...] = ()
    """That its threads may run on; none: all."""
    nodes: tuple[int, ...] = ()
    """That its memory is from; none: any."""

    def to_json(self) -> dict[str, Any]:
        """For another host."""
        return {"cpus": list(self.cpus), "nodes": list(self.nodes)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Placement":
        """Raises VicinalError for what to_json() does not write."""
        return cls(_numbers(values.get("cpus")), _numbers(values.get("nodes")))

    def require(self, action: str, name: str, host: Host) -> None:
        """check(), before an action is done; what a host has otherwise is logged."""
        if apart := self.check(name, host):
            log(action, apart)

    def check(self, name: str, host: Host) -> str:
        """In words what a host has otherwise than the one that a VM was made for; empty: nothing.

        Raises VicinalError where the host does not have what is named.
        """
        there, nodes = tuple(cpu.number for cpu in read_cpus(host)), read_nodes(host)
        known = tuple(node.number for node in nodes)
        for what, wanted, has in (
            ("runs on the processors", self.cpus, there),
            ("has its memory from the NUMA nodes", self.nodes, known),
        ):
            if has and (missing := set(wanted) - set(has)):
                raise VicinalError(
                    f"{name} {what} {show_cpu_list(wanted)}, and this host has no "
                    f"{show_cpu_list(tuple(missing))}",
                    "choose a host that has them, or end the VM and start it anew there",
                )
        return self._apart(name, nodes)

    def _apart(self, name: str, nodes: Sequence[NumaNode]) -> str:
        near = {cpu for node in nodes if node.number in self.nodes for cpu in node.cpus}
        far = set(self.cpus) - near
        if not self.nodes or not far or not near:
            return ""
        return (
            f"{name} may run on the processors {show_cpu_list(tuple(far))}, which on this host are "
            f"of another NUMA node than its memory, {show_cpu_list(self.nodes)}: the host that it "
            "was made for counts them differently"
        )


def read_placement(domain_xml: str) -> Placement:
    """What the description of a domain names. Raises VicinalError."""
    root = parse(domain_xml.encode(), "the domain", "domain")
    cpus, nodes = (
        {
            number
            for path in paths
            for each in root.iterfind(path)
            for number in parse_cpu_list(each.get(attribute) or "")
        }
        for paths, attribute in ((_PINS, "cpuset"), (_MEMORY, "nodeset"))
    )
    return Placement(tuple(sorted(cpus)), tuple(sorted(nodes)))


def _numbers(values: object) -> tuple[int, ...]:
    if isinstance(values, list) and all(type(each) is int and each >= 0 for each in values):
        return tuple(values)
    raise VicinalError(
        "where the VM runs cannot be read", "see that both hosts have the same version of Vicinal"
    )
