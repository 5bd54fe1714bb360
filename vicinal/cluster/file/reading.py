"""Reading a cluster file: YAML, checked against its schema; errors say in which line.

cluster = read_cluster(Path("cluster.yaml"))
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from vicinal.cluster.file.hosts import ClusterHost
from vicinal.cluster.file.model import (
    BackEnd,
    Cluster,
    Commands,
    Mount,
    Node,
    Placement,
    Policy,
    RegionSettings,
)
from vicinal.cluster.file.reading_hosts import check_hosts, hosts_of_group, read_hosts
from vicinal.cluster.file.reading_image import read_additions
from vicinal.cluster.file.reading_keys import COMMANDS, check_for_all, check_hypervisor, check_keys
from vicinal.cluster.file.reading_network import check_networks, read_networks
from vicinal.cluster.file.reading_region import check_region
from vicinal.cluster.region_device import RegionDevice
from vicinal.errors import VicinalError
from vicinal.host.topology import parse_cpu_list
from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES
from vicinal.region.sizes import parse_size
from vicinal.yaml_file import Form, check, line_of, load, read_text

FORM = Form(
    kind="cluster file",
    file=Path(__file__).with_name("schema.json"),
    documentation="docs/clusters.md",
    begin="begin with one of examples/, or see docs/clusters.md",
)

MOST_NODES = 1024
MACHINE_BYTES = 1 << 30
"""Memory of a virtual machine where the file does not say."""


def read_cluster(path: Path) -> Cluster:
    """The cluster that a file describes. Raises VicinalError with file, line and remedy."""
    return parse_cluster(path, read_text(FORM, path))


def parse_cluster(path: Path, text: str) -> Cluster:
    """The same of a file's text; relative paths in it begin where `path` lies."""
    return _build(path, text, load(FORM, path, text))


def part_cluster(path: Path, values: Any) -> Cluster:
    """The same of values that are a part of another file, where a cluster has no name."""
    if "name" in values:
        raise VicinalError(
            f"{line_of(path, values, 'name')}: a cluster that is part of another file has no name",
            "leave it out",
        )
    named = deepcopy(values)
    named["name"] = "part"
    check(FORM, path, named)
    return _build(path, "", named)


def load_schema() -> Mapping[str, Any]:
    """The schema as data."""
    return FORM.schema


def _build(path: Path, text: str, values: Any) -> Cluster:
    hosts = read_hosts(path, values)
    placement = values.get("placement") or {"policy": Policy.NONE}
    cluster = Cluster(
        name=str(values["name"]),
        nodes=tuple(_nodes(path, values, hosts)),
        placement=Placement(Policy(placement["policy"]), int(placement.get("reserve", 0))),
        region=_region(values.get("region") or {}),
        file=path,
        hypervisor=values.get("hypervisor"),
        hosts=hosts,
        port=values.get("port"),
        text=text,
    )
    check_hosts(path, cluster, values)
    check_hypervisor(path, cluster, values)
    check_region(path, cluster, values)
    check_for_all(path, cluster, values)
    _check_names(path, cluster)
    _check_pins(path, cluster)
    _check_native(path, cluster)
    check_networks(path, cluster)
    return cluster


def _region(given: Any) -> RegionSettings | None:
    if given == "none":
        return None
    return RegionSettings(
        members=int(given.get("members", DEFAULT_MEMBERS)),
        section_bytes=_bytes(given.get("section"), DEFAULT_SECTION_BYTES),
        heap_bytes=_bytes(given.get("heap"), 0),
        device=RegionDevice(given.get("device", RegionDevice.IVSHMEM)),
    )


def _nodes(path: Path, values: Mapping[str, Any], hosts: Sequence[ClusterHost]) -> Iterator[Node]:
    for index, group in enumerate(values["nodes"]):
        count = int(group.get("count", 1))
        backend = BackEnd(group.get("backend", BackEnd.CONTAINER))
        check_keys(path, index, group, backend)
        memory = MACHINE_BYTES if backend is BackEnd.VM else None
        if "memory" in group:
            memory = _bytes(group["memory"], 0)
        pins = [parse_cpu_list(text) for text in group.get("pin", [])]
        if pins and len(pins) != count:
            raise VicinalError(
                f"{path}: nodes[{index}] has {count} nodes, and pin names processors for "
                f"{len(pins)}",
                "give one list for each node",
            )
        commands = _commands(group, values)
        additions = read_additions(path, group, values, backend)
        networks = read_networks(path, index, group, backend, count)
        placed = hosts_of_group(path, index, group, count, hosts)
        for number in range(count):
            yield Node(
                name=f"{group['name']}{number}" if count > 1 else str(group["name"]),
                backend=backend,
                runtime=group.get("runtime"),
                cpus=len(pins[number]) if pins else int(group.get("cpus", 1)),
                pin=pins[number] if pins else (),
                memory_bytes=memory,
                mounts=tuple(_mount(path, text) for text in group.get("mounts", [])),
                network=networks[number],
                hugepages=bool(group.get("hugepages", False)),
                commands=commands,
                additions=additions,
                host=placed[number],
            )


def _commands(group: Mapping[str, Any], values: Mapping[str, Any]) -> Commands:
    """What a group's nodes run: its own, or else what the file has for all."""
    found = {key: group.get(key, values.get(key, ())) for key in COMMANDS}
    return Commands(**{key: tuple(map(str, lines)) for key, lines in found.items()})


def _mount(path: Path, text: str) -> Mount:
    """SOURCE[:DESTINATION][:ro]; a relative source begins at the file's directory."""
    given, _, destination = text.removesuffix(":ro").partition(":")
    source = str((path.parent / given).resolve())
    return Mount(source, destination or source, read_only=text.endswith(":ro"))


def _bytes(value: str | int | None, default: int) -> int:
    return default if value is None else parse_size(str(value))


def _check_names(path: Path, cluster: Cluster) -> None:
    names = [node.name for node in cluster.nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise VicinalError(
            f"{path}: two nodes would have the name {twice[0]}", "give their groups other names"
        )
    if len(names) > MOST_NODES:
        raise VicinalError(
            f"{path}: it has {len(names)} nodes", f"a cluster can have {MOST_NODES} at most"
        )


def _check_native(path: Path, cluster: Cluster) -> None:
    """A host is one node, and in no network with containers or guests."""
    for native in cluster.of(BackEnd.NATIVE):
        beside = [node for node in cluster.nodes if node is not native and node.host == native.host]
        if beside:
            itself = "this host" if native.host is None else f"the host {native.host}"
            raise VicinalError(
                f"{path}: {native.name} is native, which is {itself} itself, and there is "
                f"{beside[-1].name} too",
                "let it be the only node; nodes that are apart are containers or machines",
            )


def _check_pins(path: Path, cluster: Cluster) -> None:
    explicit = cluster.placement.policy is Policy.EXPLICIT
    for node in cluster.nodes:
        if explicit and not node.pin:
            raise VicinalError(
                f"{path}: the placement is explicit, and {node.name} has no pin",
                "give it one, or choose another policy",
            )
        if node.pin and not explicit:
            raise VicinalError(
                f"{path}: {node.name} has a pin, and the placement is "
                f"{cluster.placement.policy.value}",
                "leave out the pin, or choose the policy explicit",
            )
