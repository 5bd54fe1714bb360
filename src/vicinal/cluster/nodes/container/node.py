"""Creates, starts, stops and removes one node of a cluster whose head runs.

Each function copes with the remains of a killed command.
"""

import time
from contextlib import suppress
from pathlib import Path

from vicinal.base.daemon import started
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import cgroup, layout, network
from vicinal.cluster.nodes.container.choice import available_runtimes, choose_runtime
from vicinal.cluster.nodes.container.head_process import Head, kill_marked, tool_environment
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.node_record import (
    NodeRecord,
    drop_entry,
    mark_made,
    read_entry,
    write_entry,
)
from vicinal.cluster.nodes.container.oci import scratch_groups
from vicinal.cluster.nodes.container.root import mounts
from vicinal.cluster.nodes.container.runtime import NodeState, Prepared, Runtime
from vicinal.cluster.nodes.container.spec import ContainerSpec
from vicinal.cluster.nodes.container.state import remove_tree
from vicinal.cluster.nodes.layout import EXCHANGE

_GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.005


def nodes_directory(cluster: Path) -> Path:
    """Return the directory that contains a directory for each node."""
    return cluster / "nodes"


def all_records(cluster: Path) -> list[NodeRecord]:
    """Return the records of a cluster's nodes, in order; nodes without a record are left out."""
    with suppress(FileNotFoundError):
        found = [NodeRecord.read(each) for each in nodes_directory(cluster).iterdir()]
        return sorted(filter(None, found), key=lambda record: record.number)
    return []


def state_of(head: Head | None, cluster: Path, name: str) -> NodeState:
    """Return whether a node runs, is stopped, or does not exist; without a head no node runs."""
    directory = nodes_directory(cluster) / name
    if not directory.is_dir():
        return NodeState.ABSENT
    entry = read_entry(directory)
    if head is None or entry is None:
        return NodeState.STOPPED
    process = head.path(f"/proc/{entry['process']}")
    return NodeState.RUNNING if started(process) == entry["started"] else NodeState.STOPPED


def pid_namespace(head: Head, name: str) -> str:
    """Return the PID namespace of a node, in the format of /proc/PID/ns/pid; "" if it ended."""
    entry = read_entry(nodes_directory(head.directory) / name)
    with suppress(OSError):
        if entry is not None:
            return str(head.path(f"/proc/{entry['process']}/ns/pid").readlink())
    return ""


def own_network(head: Head, name: str) -> Path | None:
    """Return the file of a node's network namespace in /proc; None if the node is stopped."""
    entry = read_entry(nodes_directory(head.directory) / name)
    return None if entry is None else head.path(f"/proc/{entry['process']}/ns/net")


def create(head: Head, spec: ContainerSpec, runtime: Runtime) -> None:
    """Create and start a new node. Raises VicinalError; nothing of the node remains then."""
    directory = nodes_directory(head.directory) / spec.name
    others = all_records(head.directory)
    taken = {record.spec.name: record.address for record in others}
    neighbours = Neighbours.read(head.directory)
    known = {} if neighbours is None else neighbours.own
    wanted = spec.address or known.get(spec.name)
    address = network.choose_address(head, wanted, taken)
    mounts(spec, "")  # raises an error for missing files before anything is created
    directory.mkdir(parents=True)
    record = NodeRecord(
        spec=spec,
        runtime=runtime.name,
        address=address,
        number=max((each.number for each in others), default=-1) + 1,
        groups=tuple(cgroup.candidates(spec, head.identifier)),
    )
    try:
        record.write(directory)
        (directory / "hostname").write_text(f"{spec.name}\n")
        mtu = None if neighbours is None else neighbours.mtu
        network.connect(head, spec.name, address, joined=spec.joined, mtu=mtu)
        addresses = taken | {spec.name: address}
        network.write_hosts(head.network, addresses, head.path(layout.HOSTS), neighbours)
        start(head, record, runtime)
        mark_made(directory)
    except BaseException:
        remove(head, spec.name)
        raise


def start(head: Head, record: NodeRecord, runtime: Runtime) -> None:
    """Start a node that exists and does not run. Raises VicinalError."""
    spec = record.spec
    directory = nodes_directory(head.directory) / spec.name
    inside = f"{layout.NODES}/{spec.name}"
    groups, limitations = cgroup.create(spec, list(record.groups))
    for region in spec.regions:
        head.path(f"{EXCHANGE}/{region.name}").touch(mode=0o600)
    environment = {
        **tool_environment(),
        **spec.environment,
        layout.NODE_MARK: f"{head.identifier}/{spec.name}/",
    }
    node = Prepared(
        spec=spec,
        directory=inside,
        network=network.namespace(head, spec.name),
        mounts=mounts(spec, inside),
        groups=groups,
        environment=environment,
    )
    try:
        runtime.start(head, node)
    except VicinalError as error:
        raise VicinalError(
            f"{runtime.name} could not start {spec.name} ({error.remedy})",
            "remove that cause, or use another container runtime",
        ) from error
    process = runtime.process(head, spec.name)
    began = started(head.path(f"/proc/{process}")) if process is not None else None
    if process is None or began is None:
        raise VicinalError(
            f"{spec.name} ended as soon as {runtime.name} had started it",
            "check that its root contains /bin/sh and sleep, and that its memory is sufficient",
        )
    joined = [each for each in groups if runtime.name != "runc" or each.version == 1]
    write_entry(
        directory,
        {
            **runtime.entry(node, process).to_dict(),
            "process": process,
            "started": began,
            "cgroups": [layout.cgroup_path(each.path) for each in joined],
            "cpus": list(spec.cpus),
            "limitations": limitations,
        },
    )
    if spec.cpus:
        _bind(head, spec, process)


def stop(head: Head, name: str) -> None:
    """End all processes of a node, which can be started again. Raises VicinalError."""
    directory = nodes_directory(head.directory) / name
    entry = read_entry(directory)
    if entry is not None and state_of(head, head.directory, name) is NodeState.RUNNING:
        with suppress(VicinalError):  # the process may end at this moment
            head.run(["sh", "-c", 'kill -TERM "$1"', "stop", str(entry["process"])])
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline:
            if state_of(head, head.directory, name) is not NodeState.RUNNING:
                break
            time.sleep(_POLL_SECONDS)
    drop_entry(directory)
    _end(head, name)


def remove(head: Head, name: str) -> None:
    """Remove a node, even if only parts of it exist. Raises VicinalError."""
    directory = nodes_directory(head.directory) / name
    record = NodeRecord.read(directory)
    drop_entry(directory)
    if record is not None:
        _end(head, name)
        network.disconnect(head, name, record.address)
        rest = {
            each.spec.name: each.address
            for each in all_records(head.directory)
            if each.spec.name != name
        }
        neighbours = Neighbours.read(head.directory)
        network.write_hosts(head.network, rest, head.path(layout.HOSTS), neighbours)
    remove_tree(directory)


def remove_groups(record: NodeRecord, identifier: str) -> None:
    """Remove the control groups of a node whose processes have ended."""
    cgroup.remove(list(record.groups))
    if record.runtime == "runc":
        cgroup.remove(scratch_groups(identifier, record.spec.name))


def runtime_of(record: NodeRecord) -> Runtime:
    """Return the runtime of a node. Raises VicinalError if it is not installed any more."""
    return choose_runtime(record.runtime)


def _end(head: Head, name: str) -> None:
    record = NodeRecord.read(nodes_directory(head.directory) / name)
    assert record is not None
    # If the runtime was uninstalled meanwhile, only the node's processes can be ended.
    for runtime in available_runtimes():
        if runtime.name == record.runtime:
            runtime.remove(head, name)
    kill_marked(f"{head.identifier}/{name}/")
    remove_groups(record, head.identifier)


def _bind(head: Head, spec: ContainerSpec, process: int) -> None:
    """Bind a node's first process, and so its future children, to the node's processors."""
    head.run(["taskset", "-p", "-c", ",".join(map(str, spec.cpus)), str(process)])
