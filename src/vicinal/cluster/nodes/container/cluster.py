"""A cluster of containers, which stays when the command that made it has ended.

    cluster, made = ContainerCluster.create("lab")
    cluster.create_node(ContainerSpec(cluster="lab", name="node0"))
    ...
    cluster = ContainerCluster.open("lab")            # in another process
    subprocess.run(cluster.exec_command("node0", ["hostname"]))
    remove_cluster("lab")

It stays until it is removed, or the machine is shut down. It can run jobs, as an ephemeral cluster
can (job_nodes.py).
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
    """A node as it is now."""

    spec: ContainerSpec
    state: NodeState
    address: str
    runtime: str
    limitations: tuple[str, ...]
    """What it had to do without, as phrases."""


def cluster_names(base: Path | None = None) -> list[str]:
    """Names of this user's clusters, also of those whose head has ended."""
    directory = base or default_base()
    with suppress(FileNotFoundError):
        return sorted(entry.name for entry in directory.iterdir() if entry.is_dir())
    return []


def remove_cluster(name: str, base: Path | None = None) -> bool:
    """Take a cluster away with all its nodes, however much of it is there.

    Returns whether there was anything. Raises VicinalError where something stays.
    """
    check_name(name, "cluster")
    place = base or default_base()
    if not place.is_dir():
        return False
    with base_locked(place):
        return _clear_away(place / name)


class ContainerCluster(HeadNodes):
    """A cluster whose head runs. Made by create() and open()."""

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
        """The cluster of this name, and whether it had to be made.

        `neighbours` are names and addresses in a cluster over several hosts. Without `own_network`
        the nodes share the host's network.
        `base` is the directory for state, by default one of this user's. What is left of a
        cluster whose head ended is cleared away first. Raises VicinalError where it cannot be
        had; nothing of it is left then.
        """
        check_name(name, "cluster")
        place = (base or default_base()).resolve()
        with base_locked(place) as lock:
            directory = place / name
            head = Head.find(directory)
            if head is not None:
                return cls(head, place), False
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
            return cls(head, place), True

    @classmethod
    def open(cls, name: str, base: Path | None = None) -> Self:
        """The cluster of this name; raises VicinalError where none runs."""
        check_name(name, "cluster")
        place = (base or default_base()).resolve()
        head = Head.find(place / name)
        if head is None:
            what = "does not run any more" if (place / name).is_dir() else "is not there"
            raise VicinalError(f"the cluster {name} {what}", "make it with `vicinal up`")
        return cls(head, place)

    @property
    def head(self) -> Head:
        return self._head

    @property
    def state_directory(self) -> Path:
        """The directory on the host where the cluster is written down."""
        return self._directory

    @property
    def limitations(self) -> list[str]:
        """What the cluster and its nodes had to do without, as phrases."""
        found = list(self._head.limitations)
        for container in self.containers():
            found += container.limitations
        return found

    @property
    def unprivileged(self) -> bool:
        """Whether it is in a user namespace, as clusters of ordinary users are."""
        return self._head.user_namespace

    def create_node(self, spec: ContainerSpec, runtime: str | None = None) -> bool:
        """Make a node and start it; returns False where it is there and runs already.

        `runtime` is one of choice.RUNTIMES, by default the first that is installed. A node
        that is there and stopped is started. Raises VicinalError where one of that name was
        asked for differently, or where it cannot be made; nothing of it is left then.
        """
        self._check_cluster(spec)
        with base_locked(self._base):
            directory = node.nodes_directory(self._directory) / spec.name
            record = NodeRecord.read(directory)
            if record is None or not is_made(directory):
                if directory.is_dir():  # a command was killed over it
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
        """Start a node that was stopped; returns False where it runs. Raises VicinalError."""
        with base_locked(self._base):
            return self._start(self._record(name))

    def stop_node(self, name: str) -> None:
        """End all processes of a node, which can be started again. Raises VicinalError."""
        with base_locked(self._base):
            self._record(name)
            node.stop(self._head, name)

    def remove_node(self, name: str) -> bool:
        """Take a node away, however much of it is there; returns whether anything was."""
        check_name(name, "node")
        with base_locked(self._base):
            if self.state(name) is NodeState.ABSENT:
                return False
            node.remove(self._head, name)
            return True

    def state(self, name: str) -> NodeState:
        """What has become of a node."""
        return node.state_of(self._head, self._directory, name)

    def containers(self) -> list[Container]:
        """The nodes, in the order in which they were made."""
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
        """The command line that runs `command` in a node, with this process's variables.

        Its standard streams and exit status are the command's. `tty` is for a command that is to
        have a terminal, which standard input must then be. Raises VicinalError where the node
        does not run.
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
        """The file that stands for a node's network namespace; None where it has the host's."""
        inside = namespace(self._head, name)
        return None if inside is None else self._head.path(inside)

    @property
    def head_network(self) -> Path | None:
        """The same of the head's, where the bridge is."""
        return Path(f"/proc/{self._head.process}/ns/net") if self._head.network else None

    def plug_in(self, interface: str, neighbours: Neighbours) -> None:
        """Put an interface at the bridge that is in the head's network, the way to these.

        Nodes that are made afterwards send packets as large as that takes. Raises VicinalError.
        """
        mtu = plug_in(self._head, interface, neighbours.head)
        replace(neighbours, mtu=mtu).write(self._directory)

    def network_in(self, name: str) -> Path | None:
        """The same as a process in the node has it; None where it has the host's, or has ended."""
        return node.own_network(self._head, name) if self._head.network else None

    def adopt(self, name: str, given: str, interface: str, address: str | None) -> None:
        """Let an interface that root put into a node's network be its `interface` from now on."""
        adopt(self._head, name, given, interface, address)

    def process_of(self, name: str) -> int | None:
        """A process in a node, as the host numbers it; None where the node does not run."""
        import psutil

        wanted = node.pid_namespace(self._head, name)
        found = (each for each in psutil.pids() if pid_namespace(Path(f"/proc/{each}")) == wanted)
        return next(found, None) if wanted else None

    # What jobs need: JobNodes.

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
        """A file or directory of the head's, as this process can reach it."""
        for each in self.containers():
            for region in each.spec.regions:
                # The head has only the place for it.
                if path == f"{EXCHANGE}/{region.name}":
                    return Path(region.path)
        return super().seen_from_host(path)

    def ended_nodes(self) -> list[str]:
        """Names of nodes that do not run."""
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
                "make it in that one",
            )


def _clear_away(directory: Path) -> bool:
    """All that is left of a cluster, its directory last; returns whether there was any."""
    if not directory.is_dir():
        return False
    identifier = identifier_of(directory)
    if identifier is not None:
        # Its end is that of all the processes, mounts and networks in it.
        end_head(directory)
        kill_marked(f"{identifier}/")
        for record in node.all_records(directory):
            node.remove_groups(record, identifier)
    remove_tree(directory)
    return True
