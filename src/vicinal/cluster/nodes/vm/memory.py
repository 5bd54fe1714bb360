"""Check that this host has enough memory for virtual machines, before it creates any."""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_size
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.host.system import Host
from vicinal.host.topology import HugePages, read_huge_pages, read_nodes


def check_room(starting: Sequence[Vm], ending: Sequence[Vm] = (), region_bytes: int = 0) -> None:
    """Raise VicinalError if this host has too little memory for the starting VMs.

    `ending` are VMs that end first and so free their memory. `region_bytes` is the size of
    regions that are created too. VMs that are bound to one NUMA node need their memory there.
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
    starting: Sequence[Vm],
    ending: Sequence[Vm],
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
                f"give them less memory, end other programs, or {remedy}",
            )


def _bytes(vms: Sequence[Vm], *, huge: bool) -> int:
    return sum(each.memory_mib << 20 for each in vms if each.hugepages is huge)
