"""The assignment of the host's processors to the nodes of a cluster.

The policies are those of the published studies: a virtual machine for each core, socket or NUMA
node. No processor is given to two nodes, and an impossible placement is an error, not a guess.
"""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.file.model import Cluster, Node, Policy
from vicinal.host.topology import Cpu, NumaNode


def place_nodes(
    cluster: Cluster, cpus: Sequence[Cpu], numa: Sequence[NumaNode]
) -> dict[str, tuple[int, ...]]:
    """Return the processors of each node by its name; empty tuples with the policy `none`.

    `cpus` are the usable processors, and `numa` the host's NUMA nodes. Raises VicinalError for all
    nodes that do not fit.
    """
    match cluster.placement.policy:
        case Policy.NONE:
            return {node.name: () for node in cluster.nodes}
        case Policy.EXPLICIT:
            return _explicit(cluster, cpus)
        case Policy.CORE:
            return _by_core(cluster, _cores(cpus)[cluster.placement.reserve :], len(_cores(cpus)))
        case Policy.SOCKET:
            groups = [
                [cpu for cpu in cpus if cpu.socket == socket]
                for socket in sorted({cpu.socket for cpu in cpus})
            ]
            return _by_group(cluster, groups, "socket")
        case Policy.NUMA:
            groups = [[cpu for cpu in cpus if cpu.number in node.cpus] for node in numa]
            # A kernel without NUMA has one NUMA node, which it does not show.
            return _by_group(
                cluster, [group for group in groups if group] or [list(cpus)], "NUMA node"
            )


def reserved_cores(cluster: Cluster, cpus: Sequence[Cpu]) -> tuple[int, ...]:
    """Return the processors that a placement leaves to the host: all threads of the first cores."""
    first = set(_cores(cpus)[: cluster.placement.reserve])
    return tuple(sorted(cpu.number for cpu in cpus if first.intersection(cpu.siblings)))


def _cores(cpus: Sequence[Cpu]) -> list[int]:
    """Return one processor of each core, the first usable one."""
    usable = {cpu.number for cpu in cpus}
    first = {min(usable.intersection(cpu.siblings) or {cpu.number}) for cpu in cpus}
    return sorted(first)


def _by_core(cluster: Cluster, free: Sequence[int], there: int) -> dict[str, tuple[int, ...]]:
    wanted = sum(node.cpus for node in cluster.nodes)
    if wanted > len(free):
        raise VicinalError(
            f"the nodes of {cluster.name} need {wanted} cores, and this host has {there}"
            + _reserved(cluster),
            "reduce count or cpus, or choose the placement policy none",
        )
    placed, next_core = {}, 0
    for node in cluster.nodes:
        placed[node.name] = tuple(free[next_core : next_core + node.cpus])
        next_core += node.cpus
    return placed


def _by_group(
    cluster: Cluster, groups: Sequence[Sequence[Cpu]], kind: str
) -> dict[str, tuple[int, ...]]:
    """Give each node the cores of one socket or NUMA node, without the reserved cores."""
    faults = Faults()
    if len(cluster.nodes) > len(groups):
        faults.add(
            f"each of the {len(cluster.nodes)} nodes of {cluster.name} needs a {kind}, and this "
            f"host has {len(groups)}",
            "reduce count, or choose another placement policy",
        )
    reserved = set(_cores([cpu for group in groups for cpu in group])[: cluster.placement.reserve])
    placed = {}
    for node, group in zip(cluster.nodes, groups, strict=False):
        free = [core for core in _cores(group) if core not in reserved]
        if node.cpus > len(free):
            faults.add(
                f"{node.name} needs {node.cpus} cores of one {kind}, and there are {len(free)}"
                + _reserved(cluster),
                "reduce cpus, or choose another placement policy",
            )
        placed[node.name] = tuple(free[: node.cpus])
    faults.check()
    return placed


def _explicit(cluster: Cluster, cpus: Sequence[Cpu]) -> dict[str, tuple[int, ...]]:
    usable = {cpu.number for cpu in cpus}
    owner: dict[int, Node] = {}
    faults = Faults()
    for node in cluster.nodes:
        for number in node.pin:
            if number not in usable:
                faults.add(
                    f"{node.name} cannot have processor {number}: this host does not have it, or "
                    "this process may not use it",
                    "choose processors that `vicinal doctor` shows",
                )
            if number in owner:
                faults.add(
                    f"processor {number} is assigned to both {owner[number].name} and {node.name}",
                    "give each node processors of its own",
                )
            owner[number] = node
    faults.check()
    return {node.name: node.pin for node in cluster.nodes}


def _reserved(cluster: Cluster) -> str:
    reserve = cluster.placement.reserve
    return f", of which {reserve} are left to the host" if reserve else ""
