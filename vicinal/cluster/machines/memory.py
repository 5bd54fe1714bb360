"""Whether this host has the memory for virtual machines, before any is there."""

from collections.abc import Sequence

import psutil

from vicinal.cluster.machines.machine import Machine
from vicinal.errors import VicinalError
from vicinal.host.system import Host
from vicinal.host.topology import read_huge_pages
from vicinal.region.sizes import show_size


def check_room(starting: Sequence[Machine], ending: Sequence[Machine] = ()) -> None:
    """Raise VicinalError where it has too little; those that end before give their own back."""
    if not starting:
        return
    free = psutil.virtual_memory().available
    _check(_bytes(starting, huge=False), free + _bytes(ending, huge=False), "memory")
    pages = sum(each.size * each.free for each in read_huge_pages(Host()))
    _check(_bytes(starting, huge=True), pages + _bytes(ending, huge=True), "huge pages")


def _check(need: int, free: int, kind: str) -> None:
    if need > free:
        raise VicinalError(
            f"the virtual machines need {show_size(need)} of {kind}, and {show_size(free)} is free",
            "give them less memory, end something else, or "
            + ("reserve more: sysctl vm.nr_hugepages" if "huge" in kind else "use a larger host"),
        )


def _bytes(machines: Sequence[Machine], *, huge: bool) -> int:
    return sum(each.memory_mib << 20 for each in machines if each.hugepages is huge)
