"""Nodes that are containers, and the head of a cluster's containers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from vicinal.base.codec import SPARSE
from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.file.model import Commands, Node
from vicinal.cluster.file.network import NoNetwork
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.nodes.container.cluster import ContainerCluster, cluster_names, remove_cluster
from vicinal.cluster.nodes.container.head_process import nsenter
from vicinal.cluster.nodes.container.layout import REGION_NAME
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.root import unreadable
from vicinal.cluster.nodes.container.runtime import NodeState
from vicinal.cluster.nodes.container.spec import Bind, ContainerSpec, RegionFile
from vicinal.cluster.nodes.container.state import default_base
from vicinal.cluster.plan.resource import Condition, Held, Observation, Standing, Undemanding

_CONDITIONS = {
    NodeState.ABSENT: Condition.ABSENT,
    NodeState.RUNNING: Condition.READY,
    NodeState.STOPPED: Condition.STOPPED,
}


def container_spec(
    cluster: str, node: Node, cpus: tuple[int, ...], region: Path | None
) -> ContainerSpec:
    """Return the container of a node of the cluster file, on these processors.

    `region` is the region's file on the host; None without a region.
    """
    return ContainerSpec(
        cluster=cluster,
        name=node.name,
        cpus=cpus,
        memory=node.memory_bytes,
        joined=not isinstance(node.network, NoNetwork),
        regions=() if region is None else (RegionFile(str(region), REGION_NAME),),
        binds=tuple(Bind(each.source, each.destination, each.read_only) for each in node.mounts),
    )


@dataclass(frozen=True)
class ContainersResource(Standing):
    """The head of a cluster's containers: it holds their network, and launchers run in it.

    The head keeps running while the nodes are stopped, and occupies nothing of the host.
    """

    KIND: ClassVar[str] = "containers"

    cluster: str
    base: Path
    neighbours: Neighbours | None = field(default=None, metadata=SPARSE)
    """The containers on other hosts; None if all are on this host."""

    @classmethod
    def of(cls, cluster: str, neighbours: Neighbours | None = None) -> Self:
        """Return the head of a cluster."""
        return cls(cluster, default_base(), neighbours)

    def open(self) -> ContainerCluster:
        """Open the cluster of containers. Raises VicinalError if the head does not run."""
        return ContainerCluster.open(self.cluster, self.base)

    def observe(self) -> Observation:
        """Check that the head runs."""
        if self.cluster not in cluster_names(self.base):
            return Observation(Condition.ABSENT)
        try:
            self.open()
        except VicinalError:
            return Observation(Condition.BROKEN, "its head no longer runs")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Check that nsenter is installed, by which commands enter the head."""
        del released  # needs nothing that other resources release
        nsenter()

    def create(self) -> None:
        ContainerCluster.create(self.cluster, self.base, self.neighbours)

    def remove(self) -> None:
        """End the head, with all processes and containers in it."""
        remove_cluster(self.cluster, self.base)


@dataclass(frozen=True)
class ContainerResource(Undemanding):
    """A node that is a container."""

    KIND: ClassVar[str] = "node"

    spec: ContainerSpec
    runtime: str | None
    base: Path
    commands: Commands = field(default_factory=Commands)
    """Commands that commands.py runs in the node. If they change, the node is recreated."""

    @classmethod
    def of(cls, cluster: str, node: Node, cpus: tuple[int, ...], region: Path | None) -> Self:
        """Return the resource of a node of the cluster file; see container_spec()."""
        spec = container_spec(cluster, node, cpus, region)
        return cls(spec, node.runtime, default_base(), node.commands)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.spec.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The head, and the region if the cluster has one."""
        return (*(["region/main"] if self.spec.regions else []), "containers/main")

    def observe(self) -> Observation:
        """Return the container's state; absent if the head does not run."""
        try:
            state = self._cluster().state(self.spec.name)
        except VicinalError:
            return Observation(Condition.ABSENT)  # without a head there are no containers
        return Observation(_CONDITIONS[state])

    def check(self, released: Held) -> None:
        """Check that a runtime is installed, and that the mounted files can be read."""
        del released  # needs nothing that other resources release
        faults = Faults()
        with faults.catch():
            choose_runtime(self.runtime)
        faults.extend(unreadable(self.spec))
        faults.check()

    def create(self) -> None:
        self._cluster().create_node(self.spec, self.runtime)

    @property
    def runs(self) -> bool:
        return True

    def start(self) -> None:
        self._cluster().start_node(self.spec.name)

    def stop(self) -> None:
        self._cluster().stop_node(self.spec.name)

    def remove(self) -> None:
        """Remove the container; without its head it is already gone."""
        if self.spec.cluster not in cluster_names(self.base):
            return
        try:
            cluster = self._cluster()
        except VicinalError:
            return  # the removal of the head removes the rest
        cluster.remove_node(self.spec.name)

    def _cluster(self) -> ContainerCluster:
        return ContainerCluster.open(self.spec.cluster, self.base)
