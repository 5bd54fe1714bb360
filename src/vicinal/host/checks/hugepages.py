"""Huge pages: they speed up guests' memory, and regions on hugetlbfs."""

from collections.abc import Iterator

from vicinal.base.sizes import show_short_size
from vicinal.host.finding import Check, Finding, failed, passed, warned
from vicinal.host.system import Host
from vicinal.host.topology import NumaNode, read_huge_pages, read_nodes

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
