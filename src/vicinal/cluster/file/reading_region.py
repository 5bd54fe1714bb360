"""What a cluster's file says of its region, beyond what the schema can tell."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.yaml import line_of
from vicinal.cluster.file.hosts import is_share
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.region.geometry import section_fault


def check_region(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Errors for a region that cannot be made, or a device that nobody has."""
    region, given = cluster.region, values.get("region")
    if region is None or not given:
        return
    if "device" in given and not cluster.of(BackEnd.VM):
        yield VicinalError(
            f"{line_of(path, given, 'device')}: region.device is named, and no node is a virtual "
            "machine",
            "leave it out, or give nodes the backend vm",
        )
    fault = section_fault(
        region.members, region.section_bytes + region.heap_bytes, region.heap_bytes
    )
    if fault is not None:
        key = "heap" if fault.startswith("heaps") else "section"
        yield VicinalError(
            f"{line_of(path, values, 'region')}: a region cannot have {fault}",
            f"change region.{key} accordingly",
        )


def check_members(cluster: Cluster) -> None:
    """Raise VicinalError where a host's region has not a member slot for each of its nodes.

    Not a fault of the file: a job of Slurm spreads the nodes of one over its hosts. A host's share
    is not asked, since machines may have moved there.
    """
    if cluster.region is None or is_share(cluster.kept_as):
        return
    counts = Counter(node.host for node in cluster.nodes)
    host, most = counts.most_common(1)[0]
    if most > cluster.region.members:
        where = f" on {host}" if host else ""
        raise VicinalError(
            f"{cluster.file}: {most} nodes{where} are to share a region of "
            f"{cluster.region.members} members, and each rank takes at least one",
            f"let region.members be {most} or more, make fewer nodes, or write `region: none`",
        )
