"""NUMA nodes: their processors, their memory, and the distances between them."""

from collections.abc import Iterator
from typing import Any

from vicinal.base.sizes import show_short_size
from vicinal.base.wording import show_count
from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host
from vicinal.host.topology import Cpu, NumaNode, read_cpus, read_nodes, show_cpu_list


def check_numa(host: Host) -> Iterator[Finding]:
    """Report sockets, cores and threads, then the NUMA nodes."""
    cpus = read_cpus(host)
    nodes = read_nodes(host)
    shape = _shape(cpus)
    facts: dict[str, Any] = {
        "sockets": len({cpu.socket for cpu in cpus}),
        "cores": len({(cpu.socket, cpu.core) for cpu in cpus}),
        "cpus": len(cpus),
        "nodes": [
            {
                "node": node.number,
                "cpus": list(node.cpus),
                "memory_bytes": node.memory_bytes,
                "distances": list(node.distances),
            }
            for node in nodes
        ],
    }
    if not nodes:
        yield skipped(f"{shape}; the kernel shows no NUMA nodes", **facts)
        return
    yield passed(f"{shape}; {_nodes(nodes)}", **facts)
    empty = [node.number for node in nodes if node.cpus and not node.memory_bytes]
    if empty:
        yield warned(
            f"node {', '.join(map(str, empty))}: processors without memory of their own; they "
            "use memory of another node",
            "fill the sockets' memory slots evenly, or turn off interleaving of nodes in the "
            "firmware's set-up",
            nodes=empty,
        )


def _shape(cpus: list[Cpu]) -> str:
    sockets = len({cpu.socket for cpu in cpus})
    cores = len({(cpu.socket, cpu.core) for cpu in cpus})
    threads = len(cpus) // cores if cores else 0
    each = f", {threads} threads in each" if threads > 1 else ""
    return f"{show_count(sockets, 'socket')}, {show_count(cores, 'core')}{each}"


def _nodes(nodes: list[NumaNode]) -> str:
    parts = [
        f"node {node.number}: CPUs {show_cpu_list(node.cpus) or 'none'}, "
        f"{show_short_size(node.memory_bytes)}"
        for node in nodes
    ]
    far = sorted({each for node in nodes for each in node.distances} - {10})
    if far:
        most = "" if len(far) == 1 else f" to {far[-1]}"
        parts.append(f"distance {far[0]}{most} (10 is near)")
    return "; ".join(parts)


NUMA = Check("numa", "NUMA", "Sockets, cores, NUMA nodes, their memory and distances", check_numa)
