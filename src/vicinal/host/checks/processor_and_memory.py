"""Checks of processors and memory: virtualization, NUMA, huge pages, and room for regions."""

import os
import re
from collections.abc import Iterator
from typing import Any

from vicinal.base.sizes import show_short_size
from vicinal.base.wording import show_count
from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.system import Host
from vicinal.host.topology import (
    Cpu,
    NumaNode,
    read_cpus,
    read_huge_pages,
    read_nodes,
    show_cpu_list,
)

# Whether the processor can run guests. Only a guest that starts proves this.

KVM = "dev/kvm"
_EXTENSIONS = {"vmx": "Intel VT-x", "svm": "AMD-V"}


def check_processor(host: Host) -> Iterator[Finding]:
    """Report virtualization extensions and /dev/kvm: both are necessary, and neither is a proof."""
    flags = re.search(r"^flags\s*:(.*)$", host.text("proc/cpuinfo") or "", re.M)
    words = flags[1].split() if flags else []
    extension = next((name for flag, name in _EXTENSIONS.items() if flag in words), None)
    facts = {"extension": extension, "virtual_machine": host.is_virtual, "kvm": host.exists(KVM)}
    kind = "this host is a virtual machine" if host.is_virtual else "this host is a real machine"
    shown = f"{kind}, its processor shows {extension or 'no virtualization extensions'}"
    if not host.exists(KVM):
        if extension is None:
            yield skipped(
                f"{shown}, and there is no /dev/kvm: guests are emulated (TCG)",
                "for KVM, turn on nested virtualization for this virtual machine on its host"
                if host.is_virtual
                else "for KVM, turn on VT-x or AMD-V (SVM) in the firmware's set-up",
                **facts,
            )
            return
        module = "kvm_intel" if "vmx" in words else "kvm_amd"
        yield warned(
            f"{shown}, but there is no /dev/kvm",
            f"load the module: `modprobe {module}`; if that fails, turn on virtualization in the "
            "firmware's set-up",
            **facts,
        )
    elif not host.may(KVM, os.R_OK | os.W_OK):
        yield warned(
            f"{shown}, and this user may not open /dev/kvm",
            "assign /dev/kvm to the group kvm (`chgrp kvm /dev/kvm; chmod 0660 /dev/kvm`, as udev "
            "does), run `usermod --append --groups kvm USER`, and log in again",
            **facts,
        )
    elif words and extension is None:
        yield warned(
            f"{shown}, and yet there is a /dev/kvm: only a guest that starts proves KVM",
            "see the line about guests",
            **facts,
        )
    else:
        yield passed(
            f"{shown}, and this user may open /dev/kvm (see `guests` for a proof)", **facts
        )


PROCESSOR = Check(
    "processor",
    "processor",
    "Virtualization extensions of the processor, and whether this user may open /dev/kvm",
    check_processor,
)


# NUMA nodes: their processors, their memory, and the distances between them.


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


# Huge pages: they speed up guests' memory, and regions on hugetlbfs.

_TRANSPARENT = "sys/kernel/mm/transparent_hugepage"


def check_huge_pages(host: Host) -> Iterator[Finding]:
    """Report reserved and free pages of each size, on the host and on each node."""
    nodes = read_nodes(host)
    pages = [each for each in read_huge_pages(host) if each.reserved]
    facts = {
        "sizes": [
            {"size_bytes": each.size, "reserved": each.reserved, "free": each.free}
            for each in read_huge_pages(host)
        ],
        "nodes": [
            {
                "node": node.number,
                "sizes": [
                    {"size_bytes": each.size, "reserved": each.reserved, "free": each.free}
                    for each in node.huge_pages
                ],
            }
            for node in nodes
        ],
        "mounts": sorted(at for at, kind in host.mounts.items() if kind == "hugetlbfs"),
        "transparent": _chosen(host.text(f"{_TRANSPARENT}/enabled")),
        "transparent_shared": _chosen(host.text(f"{_TRANSPARENT}/shmem_enabled")),
    }
    if not pages:
        yield warned(
            "no huge pages are reserved: guests get small pages, which are slower",
            "reserve pages for the guests' memory: `sysctl vm.nr_hugepages=1024`, or "
            "hugepages=1024 on the kernel's command line, before memory is fragmented",
            **facts,
        )
        return
    shown = "; ".join(
        f"{show_short_size(each.size)}: {each.free} of {each.reserved} free"
        f" ({show_short_size(each.free * each.size)})" + _by_node(nodes, each.size)
        for each in pages
    )
    if not any(each.free for each in pages):
        yield warned(
            f"{shown}: all pages are in use",
            "end the processes that use them (`grep -l HugePages /proc/*/smaps`), or reserve more",
            **facts,
        )
        return
    bare = [
        node.number
        for node in nodes
        if node.cpus and not any(each.reserved for each in node.huge_pages)
    ]
    if len(nodes) > 1 and bare:
        yield warned(
            f"{shown}: none on node {', '.join(map(str, bare))}, so guests there would use "
            "pages of another node",
            "reserve pages on each node: /sys/devices/system/node/node"
            f"{bare[0]}/hugepages/hugepages-{pages[0].size // 1024}kB/nr_hugepages",
            **facts,
        )
    else:
        yield passed(shown, **facts)
    if not facts["mounts"]:
        yield failed(
            "no hugetlbfs is mounted, which QEMU and regions need to use huge pages",
            "run `mount -t hugetlbfs none /dev/hugepages`",
        )


def _by_node(nodes: list[NumaNode], size: int) -> str:
    if len(nodes) < 2:
        return ""
    parts = [
        f"node {node.number}: {each.free} of {each.reserved}"
        for node in nodes
        for each in node.huge_pages
        if each.size == size
    ]
    return f", {', '.join(parts)}" if parts else ""


def _chosen(text: str | None) -> str | None:
    """The word in brackets of a text such as "always [madvise] never"."""
    return None if text is None else text.partition("[")[2].partition("]")[0] or text


HUGE_PAGES = Check(
    "hugepages",
    "huge pages",
    "Huge pages reserved and free, of each size, on each NUMA node",
    check_huge_pages,
)


# /dev/shm, which holds regions.

_PLACE = "dev/shm"
_LITTLE = 256 << 20
"""Containers have 64 MiB by default, too little for several large regions."""
_TOO_LITTLE = 16 << 20
"""Size of a region for a few ranks."""


def check_shared_memory(host: Host) -> Iterator[Finding]:
    """Report whether /dev/shm is a tmpfs that this user may write to, its size, and its free
    space."""
    try:
        space = os.statvfs(host.path(_PLACE))
    except OSError:
        yield failed(
            "there is no /dev/shm, which holds regions",
            "run `mkdir /dev/shm && mount -t tmpfs tmpfs /dev/shm`",
        )
        return
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    kind = host.mounts.get("/dev/shm")
    memory = _available_memory(host)
    facts = {
        "size_bytes": size,
        "free_bytes": free,
        "filesystem": kind,
        "available_memory_bytes": memory,
    }
    shown = f"/dev/shm: {show_short_size(free)} free of {show_short_size(size)}"
    if memory is not None and memory < free:
        shown += f", but only {show_short_size(memory)} of free memory"
        free = memory
    larger = (
        "make /dev/shm larger: `mount -o remount,size=4G /dev/shm`; start a container with "
        "--shm-size=4g"
    )
    if kind is not None and kind != "tmpfs":
        yield warned(
            f"{shown}, but on {kind} instead of tmpfs: pages may be written to a disk",
            "run `mount -t tmpfs tmpfs /dev/shm`",
            **facts,
        )
    elif not host.may(_PLACE, os.W_OK):
        yield failed(
            f"{shown}, but this user may not write there", "run `chmod 1777 /dev/shm`", **facts
        )
    elif free < _TOO_LITTLE:
        yield failed(
            f"{shown}: too little for a region", f"remove old files there, or {larger}", **facts
        )
    elif free < _LITTLE:
        yield warned(f"{shown}: enough for small regions only", larger, **facts)
    else:
        yield passed(shown, **facts)


def _available_memory(host: Host) -> int | None:
    """Available memory in bytes, caches that the kernel can release included; None if unknown."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", host.text("proc/meminfo") or "", re.M)
    return int(found[1]) * 1024 if found else None


SHARED_MEMORY = Check(
    "shm",
    "shared memory",
    "Size and free space of /dev/shm, which holds regions",
    check_shared_memory,
)
