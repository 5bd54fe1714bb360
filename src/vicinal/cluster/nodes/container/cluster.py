"""A cluster of containers, which outlives the command that created it.

    cluster, made = ContainerCluster.create("lab")
    cluster.create_node(ContainerSpec(cluster="lab", name="node0"))
    ...
    cluster = ContainerCluster.open("lab")            # in another process
    subprocess.run(cluster.exec_command("node0", ["hostname"]))
    remove_cluster("lab")

The cluster exists until it is removed or the host shuts down. It runs jobs, as an ephemeral cluster
does (job_nodes.py).
"""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import layout, node
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.nodes.container.head_process import (
    Head,
    HeadNodes,
    end_head,
    identifier_of,
    kill_marked,
)
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.network import adopt, namespace, plug_in, write_hosts
from vicinal.cluster.nodes.container.node_record import NodeRecord, is_made, read_entry
from vicinal.cluster.nodes.container.runtime import NodeState
from vicinal.cluster.nodes.container.spec import ContainerSpec, check_name
from vicinal.cluster.nodes.container.state import base_locked, default_base, remove_tree
from vicinal.cluster.nodes.job_nodes import START, Node, pid_namespace
from vicinal.cluster.nodes.layout import EXCHANGE


@dataclass(frozen=True)
class Container:
    """A node and its present state."""

    spec: ContainerSpec
    state: NodeState
    address: str
    runtime: str
    limitations: tuple[str, ...]
    """What the node lacks on this host, as phrases."""


def cluster_names(base: Path | None = None) -> list[str]:
    """Return the names of this user's clusters, including clusters whose head has ended."""
    directory = base or default_base()
    with suppress(FileNotFoundError):
        return sorted(entry.name for entry in directory.iterdir() if entry.is_dir())
    return []


def remove_cluster(name: str, base: Path | None = None) -> bool:
    """Remove a cluster with all its nodes, even if only parts of it exist.

    Returns False if nothing existed. Raises VicinalError if a part cannot be removed.
    """
    check_name(name, "cluster")
    state_directory = base or default_base()
    if not state_directory.is_dir():
        return False
    with base_locked(state_directory):
        return _clear_away(state_directory / name)


class ContainerCluster(HeadNodes):
    """A cluster whose head runs; create() and open() return it."""

    def __init__(self, head: Head, base: Path) -> None:
        self._head = head
        self._base = base
        self._job = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._prepare = f"export {layout.JOB_MARK}={self._job} && "
        self._directory = head.directory

    @classmethod
    def create(
        cls,
        name: str,
        base: Path | None = None,
        neighbours: Neighbours | None = None,
        *,
        own_network: bool = True,
    ) -> tuple[Self, bool]:
        """Return the cluster with this name, and whether it was created by this call.

        `base` is the directory for state, by default default_base(). `neighbours` are names and
        addresses in a cluster over several hosts. Without `own_network` the nodes share the host's
        network.

        The remains of a cluster whose head ended are removed first. Raises VicinalError if the
        cluster cannot be created; nothing of it remains then.
        """
        check_name(name, "cluster")
        state_directory = (base or default_base()).resolve()
        with base_locked(state_directory) as lock:
            directory = state_directory / name
            head = Head.find(directory)
            if head is not None:
                return cls(head, state_directory), False
            _clear_away(directory)
            node.nodes_directory(directory).mkdir(parents=True)
            try:
                if neighbours is not None:
                    neighbours.write(directory)
                write_hosts(True, {}, directory / "hosts", neighbours)
                head = Head.start(directory, lock, own_network=own_network)
                write_hosts(head.network, {}, directory / "hosts", neighbours)
            except BaseException:
                _clear_away(directory)
                raise
            return cls(head, state_directory), True

    @classmethod
    def open(cls, name: str, base: Path | None = None) -> Self:
        """Return the cluster with this name. Raises VicinalError if it does not run."""
        check_name(name, "cluster")
        state_directory = (base or default_base()).resolve()
        head = Head.find(state_directory / name)
        if head is None:
            what = "does not run any more" if (state_directory / name).is_dir() else "is not there"
            raise VicinalError(f"the cluster {name} {what}", "make it with `vicinal up`")
        return cls(head, state_directory)

    @property
    def head(self) -> Head:
        return self._head

    @property
    def state_directory(self) -> Path:
        """The directory on the host with the records of the cluster."""
        return self._directory

    @property
    def limitations(self) -> list[str]:
        """What the cluster and its nodes lack on this host, as phrases."""
        found = list(self._head.limitations)
        for container in self.containers():
            found += container.limitations
        return found

    @property
    def unprivileged(self) -> bool:
        """Whether the cluster is in a user namespace, as clusters of ordinary users are."""
        return self._head.user_namespace

    def create_node(self, spec: ContainerSpec, runtime: str | None = None) -> bool:
        """Create a node and start it; returns False if the node runs already.

        `runtime` is one of choice.RUNTIMES, by default the first that is installed. A node that
        exists and is stopped is started. Raises VicinalError if a node with this name and another
        specification or runtime exists. Also raises VicinalError if the node cannot be created;
        nothing of it remains then.
        """
        self._check_cluster(spec)
        with base_locked(self._base):
            directory = node.nodes_directory(self._directory) / spec.name
            record = NodeRecord.read(directory)
            if record is None or not is_made(directory):
                if directory.is_dir():  # a command was killed while it created or removed the node
                    node.remove(self._head, spec.name)
                node.create(self._head, spec, choose_runtime(runtime))
                return True
            if record.spec != spec or runtime not in (None, record.runtime):
                raise VicinalError(
                    f"there is another {spec.name} in the cluster {spec.cluster}",
                    "remove it first, or take another name",
                )
            return self._start(record)

    def start_node(self, name: str) -> bool:
        """Start a stopped node; returns False if the node runs already. Raises VicinalError."""
        with base_locked(self._base):
            return self._start(self._record(name))

    def stop_node(self, name: str) -> None:
        """End all processes of a node; start_node() starts it again. Raises VicinalError."""
        with base_locked(self._base):
            self._record(name)
            node.stop(self._head, name)

    def remove_node(self, name: str) -> bool:
        """Remove a node, even if only parts of it exist; returns False if nothing existed."""
        check_name(name, "node")
        with base_locked(self._base):
            if self.state(name) is NodeState.ABSENT:
                return False
            node.remove(self._head, name)
            return True

    def state(self, name: str) -> NodeState:
        """Return whether a node runs, is stopped, or does not exist."""
        return node.state_of(self._head, self._directory, name)

    def containers(self) -> list[Container]:
        """Return the nodes, in the order of their creation."""
        found = []
        for record in node.all_records(self._directory):
            name = record.spec.name
            entry = read_entry(node.nodes_directory(self._directory) / name) or {}
            found.append(
                Container(
                    spec=record.spec,
                    state=self.state(name),
                    address=record.address,
                    runtime=record.runtime,
                    limitations=tuple(entry.get("limitations", ())),
                )
            )
        return found

    def exec_command(
        self, name: str, command: Sequence[str], *, tty: bool = False, directory: str = "/"
    ) -> list[str]:
        """Return the command line that runs `command` in a node, with this process's variables.

        Its standard streams and exit status are those of `command`. `tty` gives `command` a
        terminal; standard input must then be a terminal. `directory` is the working directory in
        the node. Raises VicinalError if the node does not run.
        """
        state = self.state(name)
        if state is not NodeState.RUNNING:
            if state is NodeState.STOPPED:
                raise VicinalError(f"{name} does not run", START)
            raise VicinalError(f"there is no {name}", "see `vicinal status`")
        options = ["--tty"] if tty else []
        options += ["--directory", directory]
        return self._head.command([layout.ENTER, *options, name, *command])

    def network_of(self, name: str) -> Path | None:
        """Return the file of a node's network namespace; None if nodes use the host's network."""
        inside = namespace(self._head, name)
        return None if inside is None else self._head.path(inside)

    @property
    def head_network(self) -> Path | None:
        """The file of the head's network namespace, with the bridge; None as in network_of()."""
        return Path(f"/proc/{self._head.process}/ns/net") if self._head.network else None

    def plug_in(self, interface: str, neighbours: Neighbours) -> None:
        """Attach an interface of the head's network, which leads to `neighbours`, to the bridge.

        Nodes that are created afterwards use the interface's MTU. Raises VicinalError.
        """
        mtu = plug_in(self._head, interface, neighbours.head)
        replace(neighbours, mtu=mtu).write(self._directory)

    def network_in(self, name: str) -> Path | None:
        """Return the file of a node's network namespace in /proc, by the node's first process.

        None if nodes share the host's network, or if the node is stopped.
        """
        return node.own_network(self._head, name) if self._head.network else None

    def adopt(self, name: str, given: str, interface: str, address: str | None) -> None:
        """Rename an interface that root moved into a node's network from `given` to `interface`.

        The interface gets the address, if there is one, and is set up. Raises VicinalError.
        """
        adopt(self._head, name, given, interface, address)

    def process_of(self, name: str) -> int | None:
        """Return the host's PID of a process in a node; None if the node does not run."""
        import psutil

        wanted = node.pid_namespace(self._head, name)
        found = (each for each in psutil.pids() if pid_namespace(Path(f"/proc/{each}")) == wanted)
        return next(found, None) if wanted else None

    # The methods of JobNodes.

    @property
    def nodes(self) -> list[Node]:
        return [
            Node(
                name=each.spec.name,
                address=each.address,
                pid_namespace=node.pid_namespace(self._head, each.spec.name),
            )
            for each in self.containers()
            if each.state is NodeState.RUNNING
        ]

    def seen_from_host(self, path: str) -> Path:
        for each in self.containers():
            for region in each.spec.regions:
                # In the head, this path is only an empty file, the mount point.
                if path == f"{EXCHANGE}/{region.name}":
                    return Path(region.path)
        return super().seen_from_host(path)

    def ended_nodes(self) -> list[str]:
        """Return the names of nodes that do not run."""
        return [each.spec.name for each in self.containers() if each.state is not NodeState.RUNNING]

    def _is_of_job(self, process: Path) -> bool:
        mark = f"{layout.JOB_MARK}={self._job}".encode()
        return mark in (process / "environ").read_bytes().split(b"\0")

    def _start(self, record: NodeRecord) -> bool:
        name = record.spec.name
        if self.state(name) is NodeState.RUNNING:
            return False
        node.stop(self._head, name)
        node.start(self._head, record, node.runtime_of(record))
        return True

    def _record(self, name: str) -> NodeRecord:
        record = NodeRecord.read(node.nodes_directory(self._directory) / name)
        if record is None:
            raise VicinalError(f"there is no {name} in the cluster", "see `vicinal status`")
        return record

    def _check_cluster(self, spec: ContainerSpec) -> None:
        if spec.cluster != self._directory.name:
            raise VicinalError(
                f"{spec.name} is for the cluster {spec.cluster}, not {self._directory.name}",
                "create it in that cluster",
            )


def _clear_away(directory: Path) -> bool:
    """Remove all parts of a cluster, its directory last; returns False if nothing existed."""
    if not directory.is_dir():
        return False
    identifier = identifier_of(directory)
    if identifier is not None:
        # All processes, mounts and networks of the cluster end with the head.
        end_head(directory)
        kill_marked(f"{identifier}/")
        for record in node.all_records(directory):
            node.remove_groups(record, identifier)
    remove_tree(directory)
    return True
