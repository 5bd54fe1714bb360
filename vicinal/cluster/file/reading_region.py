"""What a cluster's file says of its region, beyond what the schema can tell."""

from pathlib import Path
from typing import Any

from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.errors import VicinalError
from vicinal.region.geometry import section_fault
from vicinal.yaml_file import line_of


def check_region(path: Path, cluster: Cluster, values: Any) -> None:
    """Raise VicinalError for a region that cannot be made, or a device that nobody has."""
    region, given = cluster.region, values.get("region")
    if region is None or not given:
        return
    if "device" in given and not cluster.of(BackEnd.VM):
        raise VicinalError(
            f"{line_of(path, given, 'device')}: region.device is named, and no node is a virtual "
            "machine",
            "leave it out, or give nodes the backend vm",
        )
    fault = section_fault(
        region.members, region.section_bytes + region.heap_bytes, region.heap_bytes
    )
    if fault is not None:
        key = "heap" if fault.startswith("heaps") else "section"
        raise VicinalError(
            f"{line_of(path, values, 'region')}: a region cannot have {fault}",
            f"change region.{key} accordingly",
        )
