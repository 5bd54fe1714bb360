"""Whether this host has the memory for virtual machines, before any is there."""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_size
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.host.system import Host
from vicinal.host.topology import HugePages, read_huge_pages, read_nodes


def check_room(
    starting: Sequence[Machine], ending: Sequence[Machine] = (), region_bytes: int = 0
) -> None:
    """Raise VicinalError where it has too little; those that end before give their own back.

    `region_bytes` more are taken by regions. So it is where a NUMA node has too little, for those
    whose memory must come from it.
    """
    if not starting:
        return
    import psutil

    host = Host()
    free = psutil.virtual_memory().available - region_bytes
    pages = read_huge_pages(host)
    _check(starting, ending, free, pages, "")
    for node in read_nodes(host):
        only = (node.number,)
        _check(
            [each for each in starting if each.memory_nodes == only],
            [each for each in ending if each.memory_nodes == only],
            node.available_bytes,
            node.huge_pages,
            f" of NUMA node {node.number}",
        )


def _check(
    starting: Sequence[Machine],
    ending: Sequence[Machine],
    available: int,
    pages: Sequence[HugePages],
    where: str,
) -> None:
    reserved = sum(each.size * each.free for each in pages)
    reserve = "reserve more: sysctl vm.nr_hugepages"
    if where:
        reserve = "reserve more there, in /sys/devices/system/node"
    for kind, there, huge, remedy in (
        ("memory", available, False, "use a larger host"),
        ("huge pages", reserved, True, reserve),
    ):
        need, free = _bytes(starting, huge=huge), there + _bytes(ending, huge=huge)
        if need > free:
            raise VicinalError(
                f"the virtual machines need {show_size(need)} of {kind}{where}, and "
                f"{show_size(free)} is free",
                f"give them less memory, end something else, or {remedy}",
            )


def _bytes(machines: Sequence[Machine], *, huge: bool) -> int:
    return sum(each.memory_mib << 20 for each in machines if each.hugepages is huge)
