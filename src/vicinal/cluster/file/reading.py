"""Reading a cluster file: YAML, checked against its schema. Errors name file and line.

cluster = read_cluster(Path("cluster.yaml"))
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import FAULTY, Faults
from vicinal.base.sizes import parse_size
from vicinal.base.yaml import Form, line_of, load_parts, mark_faults, read_text
from vicinal.cluster.file.hosts import ClusterHost
from vicinal.cluster.file.model import (
    BackEnd,
    Cluster,
    Commands,
    ImageAdditions,
    Mount,
    Node,
    Placement,
    Policy,
    RegionSettings,
)
from vicinal.cluster.file.reading_hosts import check_hosts, hosts_of_group, read_hosts
from vicinal.cluster.file.reading_network import check_networks, read_networks
from vicinal.cluster.file.reading_region import check_region
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.host.topology import parse_cpu_list
from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES

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
"""Keys of the commands that nodes run when they start, in a group or for all nodes."""
_MOUNTED_ON = ("/dev", "/proc", "/run", "/sys")
"""Mount points of a booted VM, which hide the files of the image below them."""
_OURS = ("/init", "/etc/vicinal")
"""Paths of the image that Vicinal needs itself."""
FORM = Form(
    kind="cluster file",
    file=Path(__file__).with_name("schema.json"),
    documentation="docs/reference/cluster-file.md",
    begin="begin with one of examples/, or see docs/reference/cluster-file.md",
)

MOST_NODES = 1024
VM_BYTES = 1 << 30
"""Memory of a VM if the file sets none."""


def read_cluster(path: Path) -> Cluster:
    """Read a cluster file.

    Raises VicinalError with file, line and remedy for every mistake in the file.
    """
    return parse_cluster(path, read_text(FORM, path))


def parse_cluster(path: Path, text: str) -> Cluster:
    """Read the text of a cluster file; relative paths in it begin at the folder of `path`.

    Raises VicinalError as read_cluster() does.
    """
    faults = Faults()
    cluster = faults.attempt(_build, path, text, load_parts(FORM, path, text, faults), faults)
    faults.check()
    return cluster


def part_cluster(path: Path, values: Any) -> Cluster:
    """Read a cluster that is a part of another file; such a cluster has no name.

    `values` are the part's values, with their lines. Raises VicinalError as read_cluster() does.
    """
    faults = Faults()
    if "name" in values:
        faults.add(
            f"{line_of(path, values, 'name')}: a cluster in another file cannot have a name",
            "remove `name`",
        )
    named = deepcopy(values)
    named["name"] = "part"
    mark_faults(FORM, path, named, faults)
    cluster = faults.attempt(_build, path, "", named, faults)
    faults.check()
    return cluster


def load_schema() -> Mapping[str, Any]:
    """Return the JSON schema of cluster files."""
    return FORM.schema


def _build(path: Path, text: str, values: Any, faults: Faults) -> Cluster:
    """Build the cluster; collect mistakes in `faults`, and put FAULTY instead of wrong parts."""
    hosts = faults.attempt(read_hosts, path, values)
    positions: dict[str, str] = {}
    cluster = Cluster(
        name=faults.attempt(lambda: str(values["name"])),
        nodes=_nodes(path, values, hosts, faults, positions),
        placement=faults.attempt(_placement, values),
        region=faults.attempt(_region, values),
        file=path,
        hypervisor=values.get("hypervisor"),
        hosts=hosts,
        port=values.get("port"),
        text=text,
    )
    for check in (check_hosts, check_hypervisor, check_region, check_for_all):
        faults.extend(check(path, cluster, values))
    for check_all in (_check_names, _check_pins, _check_host_nodes, check_networks):
        faults.extend(check_all(positions, cluster))
    return cluster


def _placement(values: Any) -> Placement:
    given = values.get("placement")
    if given is None:
        return Placement(Policy.NONE, 0)
    return Placement(Policy(given["policy"]), int(given.get("reserve", 0)))


def _region(values: Any) -> RegionSettings | None:
    given = values.get("region", {})
    if given is None:
        given = {}
    if given == "none":
        return None
    return RegionSettings(
        members=int(given.get("members", DEFAULT_MEMBERS)),
        section_bytes=_bytes(given.get("section"), DEFAULT_SECTION_BYTES),
        heap_bytes=_bytes(given["heap"], 0) if "heap" in given else None,
        device=RegionDevice(given.get("device", RegionDevice.IVSHMEM)),
    )


def _nodes(
    path: Path,
    values: Any,
    hosts: Sequence[ClusterHost],
    faults: Faults,
    positions: dict[str, str],
) -> tuple[Node, ...]:
    """Build the nodes of all groups; FAULTY if the nodes of a group are unknown.

    `positions` gets file and line of each node by its name; for equal names those of the last node.
    """
    found: list[Node] = []
    whole = True
    for index, group in enumerate(faults.attempt(lambda: list(values["nodes"]), otherwise=[])):
        nodes = faults.attempt(_group, path, index, group, values, hosts, faults, otherwise=None)
        whole = whole and nodes is not None
        found += nodes or ()
        positions |= {node.name: line_of(path, group, "name") for node in nodes or ()}
    nodes_of_all: tuple[Node, ...] = tuple(found) if whole and found else FAULTY
    return nodes_of_all


def _group(
    path: Path,
    index: int,
    group: Any,
    values: Any,
    hosts: Sequence[ClusterHost],
    faults: Faults,
) -> list[Node]:
    """Build the nodes of a group; FAULTY replaces each wrong part."""
    name, count = str(group["name"]), int(group.get("count", 1))
    backend = BackEnd(group.get("backend", BackEnd.CONTAINER))
    unknown = [FAULTY] * count
    faults.extend(check_keys(path, index, group, backend))
    pins = faults.attempt(_pins, path, index, group, count, otherwise=unknown)
    networks = faults.attempt(read_networks, path, index, group, backend, count, otherwise=unknown)
    placed = faults.attempt(hosts_of_group, path, index, group, count, hosts, otherwise=unknown)
    cpus = faults.attempt(lambda: int(group.get("cpus", 1)))
    memory = faults.attempt(_memory, group, backend)
    mounts = faults.attempt(lambda: tuple(_mount(path, text) for text in group.get("mounts", [])))
    commands = faults.attempt(_commands, group, values)
    additions = faults.attempt(read_additions, path, group, values, backend)
    hugepages = faults.attempt(lambda: bool(group.get("hugepages", False)))
    return [
        Node(
            name=f"{name}{number}" if count > 1 else name,
            backend=backend,
            runtime=group.get("runtime"),
            cpus=len(pins[number]) if group.get("pin") and pins is not unknown else cpus,
            pin=pins[number],
            memory_bytes=memory,
            mounts=mounts,
            network=networks[number],
            hugepages=hugepages,
            commands=commands,
            additions=additions,
            host=placed[number],
        )
        for number in range(count)
    ]


def _pins(path: Path, index: int, group: Any, count: int) -> list[tuple[int, ...]]:
    """Return the processors of each of `count` nodes; empty tuples if the group has no `pin`."""
    pins = [parse_cpu_list(text) for text in group.get("pin", [])]
    if pins and len(pins) != count:
        raise VicinalError(
            f"{line_of(path, group, 'pin')}: nodes[{index}] has {count} nodes, and pin has "
            f"{len(pins)} lists of processors",
            "write one list for each node",
        )
    return pins or [()] * count


def _memory(group: Any, backend: BackEnd) -> int | None:
    if "memory" in group:
        return _bytes(group["memory"], 0)
    return VM_BYTES if backend is BackEnd.VM else None


def _commands(group: Mapping[str, Any], values: Mapping[str, Any]) -> Commands:
    """Return the commands of a group, or else the commands of the file."""
    found = {key: group.get(key, values.get(key, ())) for key in COMMANDS}
    return Commands(**{key: tuple(map(str, lines)) for key, lines in found.items()})


def _mount(path: Path, text: str) -> Mount:
    """Parse SOURCE[:DESTINATION][:ro]; a relative source begins at the file's folder."""
    given, _, destination = text.removesuffix(":ro").partition(":")
    source = str((path.parent / given).resolve())
    return Mount(source, destination or source, read_only=text.endswith(":ro"))


def _bytes(value: str | int | None, default: int) -> int:
    return default if value is None else parse_size(str(value))


def _check_names(positions: Mapping[str, str], cluster: Cluster) -> Iterator[VicinalError]:
    names = [node.name for node in cluster.nodes]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield VicinalError(
            f"{positions[name]}: two nodes would have the name {name}",
            "give their groups different names",
        )
    if len(names) > MOST_NODES:
        yield VicinalError(
            f"{positions[names[-1]]}: the cluster has {len(names)} nodes",
            f"use at most {MOST_NODES} nodes",
        )


def _check_host_nodes(positions: Mapping[str, str], cluster: Cluster) -> Iterator[VicinalError]:
    """Yield errors for host nodes beside other nodes of the same host.

    A host is one node, and shares no network with containers or VMs.
    """
    for own in cluster.of(BackEnd.HOST):
        others = [node for node in cluster.nodes if node is not own and node.host == own.host]
        if others:
            itself = "this host" if own.host is None else f"the host {own.host}"
            yield VicinalError(
                f"{positions[own.name]}: the host node {own.name} is {itself} itself, and "
                f"cannot be beside {others[-1].name}",
                "let it be the host's only node, or use containers or virtual machines",
            )


def _check_pins(positions: Mapping[str, str], cluster: Cluster) -> Iterator[VicinalError]:
    policy, seen = cluster.placement.policy, set()
    explicit = policy is Policy.EXPLICIT
    for node in cluster.nodes:
        position = positions[node.name]
        if explicit is bool(node.pin) or position in seen:
            continue
        seen.add(position)  # the other nodes of the group have the same mistake
        if explicit:
            yield VicinalError(
                f"{position}: the placement policy is explicit, and {node.name} has no pin",
                "add a pin, or choose another policy",
            )
        else:
            yield VicinalError(
                f"{position}: {node.name} has a pin, and the placement policy is {policy.value}",
                "remove the pin, or choose the policy explicit",
            )


def read_additions(
    path: Path, group: Mapping[str, Any], values: Mapping[str, Any], backend: BackEnd
) -> ImageAdditions:
    """Return the image additions of a group, or else the additions of the file.

    Raises VicinalError for paths in the VMs at which files cannot be placed.
    """
    given = group.get("image", values.get("image", {}))
    if backend is not BackEnd.VM:
        return ImageAdditions()
    files: Mapping[str, str] = given.get("files", {})
    found: dict[str, str] = {}
    for source, target in files.items():
        position = f"{line_of(path, files, source)}: image.files puts {source}"
        where = str(PurePosixPath(target))
        if ".." in PurePosixPath(target).parts or where == "/":
            raise VicinalError(
                f"{position} at {target}, which is not a file's absolute path",
                "write the absolute path in the virtual machines",
            )
        for reserved in (*_MOUNTED_ON, *_OURS):
            if PurePosixPath(where).is_relative_to(reserved):
                why = "is a mount point" if reserved in _MOUNTED_ON else "belongs to Vicinal"
                raise VicinalError(
                    f"{position} at {target}, and {reserved} {why}",
                    "choose another path, and copy the file in first_boot or each_boot",
                )
        if where in found:
            raise VicinalError(
                f"{position} at {target}, where {found[where]} is already", "remove one of them"
            )
        found[where] = source
    return ImageAdditions(
        packages=tuple(dict.fromkeys(given.get("packages", ()))),
        # A relative path begins at the file's folder.
        files=tuple(
            (os.path.normpath((path.parent / source).absolute()), where)
            for where, source in found.items()
        ),
    )


def check_keys(
    path: Path, index: int, group: Mapping[str, Any], backend: BackEnd
) -> Iterator[VicinalError]:
    """Yield errors for keys that the back end of a group does not support."""
    for key, kinds in _MEANS_SOMETHING_TO.items():
        if key in group and backend not in kinds:
            named, line = " or ".join(kinds), line_of(path, group, key)
            yield VicinalError(
                f"{line}: nodes[{index}] has the backend {backend.value}, and {key} is only for "
                f"{named}",
                f"remove {key}, or choose the backend {named}",
            )


def check_for_all(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Yield errors for keys of the whole file that no node's back end supports."""
    for key in (*COMMANDS, "image"):
        kinds = _MEANS_SOMETHING_TO[key]
        if key in values and not any(cluster.of(kind) for kind in kinds):
            named = " or ".join(kinds)
            yield VicinalError(
                f"{line_of(path, values, key)}: {key} is only for the backend {named}, and no node "
                "has it",
                f"remove {key}, or give nodes the backend {named}",
            )


def check_hypervisor(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Yield errors for `hypervisor` in a file without virtual machines."""
    if cluster.hypervisor is not None and not cluster.of(BackEnd.VM):
        yield VicinalError(
            f"{line_of(path, values, 'hypervisor')}: hypervisor is set, and no node is a virtual "
            "machine",
            "remove it, or give nodes the backend vm",
        )
