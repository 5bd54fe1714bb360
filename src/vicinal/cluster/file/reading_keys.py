"""Keys of a cluster's file that mean something to one back end alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.yaml import line_of
from vicinal.cluster.file.model import BackEnd, Cluster

_CONTAINER_AND_VM = (BackEnd.CONTAINER, BackEnd.VM)
_MEANS_SOMETHING_TO = {
    "memory": _CONTAINER_AND_VM,
    "runtime": (BackEnd.CONTAINER,),
    "mounts": (BackEnd.CONTAINER,),
    "hugepages": (BackEnd.VM,),
    "image": (BackEnd.VM,),
    "first_boot": _CONTAINER_AND_VM,
    "each_boot": _CONTAINER_AND_VM,
}

COMMANDS = ("first_boot", "each_boot")
"""Keys of what nodes run when they start, for a group or for all."""


def check_keys(
    path: Path, index: int, group: Mapping[str, Any], backend: BackEnd
) -> Iterator[VicinalError]:
    """Errors for a key that means nothing to the back end of a group of nodes."""
    for key, kinds in _MEANS_SOMETHING_TO.items():
        if key in group and backend not in kinds:
            named, place = " or ".join(kinds), line_of(path, group, key)
            yield VicinalError(
                f"{place}: nodes[{index}] is of the backend {backend.value}, and {key} is for "
                f"{named} alone",
                f"leave out {key}, or choose the backend {named}",
            )


def check_for_all(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Errors for what is said of all nodes, and means nothing to any of them."""
    for key in (*COMMANDS, "image"):
        kinds = _MEANS_SOMETHING_TO[key]
        if key in values and not any(cluster.of(kind) for kind in kinds):
            named = " or ".join(kinds)
            yield VicinalError(
                f"{line_of(path, values, key)}: {key} is for {named} alone, and no node is one",
                f"leave out {key}, or give nodes the backend {named}",
            )


def check_hypervisor(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Errors for a hypervisor that has nothing to make."""
    if cluster.hypervisor is not None and not cluster.of(BackEnd.VM):
        yield VicinalError(
            f"{line_of(path, values, 'hypervisor')}: hypervisor is named, and no node is a virtual "
            "machine",
            "leave it out, or give nodes the backend vm",
        )
