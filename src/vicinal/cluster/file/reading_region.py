"""Checks of the region in a cluster file that the schema cannot express."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.yaml import line_of
from vicinal.cluster.file.hosts import is_host_part
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.region.geometry import section_fault


def check_region(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Yield errors for a region that cannot be created, and for a device that no node has."""
    region, given = cluster.region, values.get("region")
    if region is None or not given:
        return
    if "device" in given and not cluster.of(BackEnd.VM):
        yield VicinalError(
            f"{line_of(path, given, 'device')}: region.device is set, and no node is a virtual "
            "machine",
            "remove it, or give nodes the backend vm",
        )
    heap_bytes = region.heap_bytes or 0
    fault = section_fault(region.members, region.section_bytes + heap_bytes, heap_bytes)
    if fault is not None:
        key = "heap" if fault.startswith("heaps") else "section"
        yield VicinalError(
            f"{line_of(path, values, 'region')}: a region cannot have {fault}",
            f"change region.{key} accordingly",
        )


def check_members(cluster: Cluster) -> None:
    """Raise VicinalError if a host's region has fewer member slots than the host has nodes.

    read_cluster() does not check this, because a job of Slurm spreads the nodes of a file over its
    hosts. A host's part is not checked, because VMs may have moved to the host.
    """
    if cluster.region is None or is_host_part(cluster.kept_as):
        return
    counts = Counter(node.host for node in cluster.nodes)
    host, most = counts.most_common(1)[0]
    if most > cluster.region.members:
        where = f" on {host}" if host else ""
        raise VicinalError(
            f"{cluster.file}: the region has {cluster.region.members} members, and the {most} "
            f"nodes{where} need at least one each",
            f"set region.members to {most} or more, reduce count, or write `region: none`",
        )
