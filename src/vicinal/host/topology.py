"""Processors, NUMA nodes, their distances, and huge pages, from sysfs."""

import re
from dataclasses import dataclass

from vicinal.host.system import Host

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"

PAGE_SIZES = "sys/kernel/mm/hugepages"


@dataclass(frozen=True)
class Cpu:
    """An online processor in the kernel's numbering: a hardware thread."""

    number: int
    core: int
    socket: int
    siblings: tuple[int, ...]
    """All hardware threads of the processor's core, itself included."""


@dataclass(frozen=True)
class HugePages:
    """Huge pages of one size, of one node or of the whole host."""

    size: int
    """Bytes of one page."""
    reserved: int
    free: int


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node: processors, and the memory near to them."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int
    available_bytes: int
    """The memory that can be allocated: free memory, and caches that the kernel can release."""
    distances: tuple[int, ...]
    """Distance to each node, in the order of node numbers; 10 to the node itself."""
    huge_pages: tuple[HugePages, ...]


def read_cpus(host: Host) -> list[Cpu]:
    """Return every online processor."""
    found = []
    for number in parse_cpu_list(host.text(f"{_CPUS}/online") or ""):
        directory = f"{_CPUS}/cpu{number}/topology"
        siblings = host.text(f"{directory}/thread_siblings_list")
        core = host.number(f"{directory}/core_id")
        socket = host.number(f"{directory}/physical_package_id")
        found.append(
            Cpu(
                number=number,
                core=number if core is None else core,
                socket=0 if socket is None else max(socket, 0),  # -1: unknown
                siblings=parse_cpu_list(siblings or "") or (number,),
            )
        )
    return found


def read_nodes(host: Host) -> list[NumaNode]:
    """Return every online NUMA node; empty if the kernel was built without NUMA."""
    found = []
    for name in host.names(_NODES):
        match = re.fullmatch(r"node(\d+)", name)
        if match is None:
            continue
        directory = f"{_NODES}/{name}"
        memory = dict(re.findall(r"(\w+):\s+(\d+) kB", host.text(f"{directory}/meminfo") or ""))
        distances = (host.text(f"{directory}/distance") or "").split()
        found.append(
            NumaNode(
                number=int(match[1]),
                cpus=parse_cpu_list(host.text(f"{directory}/cpulist") or ""),
                memory_bytes=int(memory.get("MemTotal", 0)) * 1024,
                available_bytes=_available(memory) * 1024,
                distances=tuple(int(each) for each in distances if each.isdecimal()),
                huge_pages=read_huge_pages(host, f"{directory}/hugepages"),
            )
        )
    return found


def _available(memory: dict[str, str]) -> int:
    """Available kB from a node's meminfo, which lacks the host's MemAvailable."""
    free, files, reclaimable = (
        int(memory.get(name, 0)) for name in ("MemFree", "FilePages", "SReclaimable")
    )
    return free + max(files - int(memory.get("Shmem", 0)), 0) + reclaimable


def read_last_cache(host: Host, cpu: int) -> int | None:
    """Return the bytes of a processor's last-level cache, which it may share; None if unknown."""
    directory = f"{_CPUS}/cpu{cpu}/cache"
    sizes: dict[int, int] = {}
    for name in host.names(directory):
        level = host.number(f"{directory}/{name}/level")
        match = re.fullmatch(r"(\d{1,9})K", host.text(f"{directory}/{name}/size") or "", re.ASCII)
        if level and match and host.text(f"{directory}/{name}/type") in ("Data", "Unified"):
            sizes[level] = int(match[1]) * 1024
    return sizes[max(sizes)] if sizes else None


def read_huge_pages(host: Host, directory: str = PAGE_SIZES) -> tuple[HugePages, ...]:
    """Return huge pages by size, smallest first, of the host or of the node in `directory`."""
    found = []
    for name in host.names(directory):
        match = re.fullmatch(r"hugepages-(\d+)kB", name)
        if match is not None:
            found.append(
                HugePages(
                    size=int(match[1]) * 1024,
                    reserved=host.number(f"{directory}/{name}/nr_hugepages") or 0,
                    free=host.number(f"{directory}/{name}/free_hugepages") or 0,
                )
            )
    return tuple(sorted(found, key=lambda each: each.size))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as "0-3,8"; empty if the text is malformed."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip(), re.ASCII)
        if match is None:
            return ()
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(numbers)


def show_cpu_list(numbers: tuple[int, ...]) -> str:
    """Return numbers in the shortest notation: "0-3,8"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
