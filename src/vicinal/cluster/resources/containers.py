"""Nodes that are containers, and the head that they stand on."""

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
    """A node as the cluster's file has it, on these processors."""
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
    """The head of a cluster's containers: their network, and where launchers run.

    It stays while its nodes are stopped, and takes nothing.
    """

    KIND: ClassVar[str] = "containers"

    cluster: str
    base: Path
    neighbours: Neighbours | None = field(default=None, metadata=SPARSE)
    """Where the cluster has containers on other hosts too."""

    @classmethod
    def of(cls, cluster: str, neighbours: Neighbours | None = None) -> Self:
        """The head that a cluster is to have."""
        return cls(cluster, default_base(), neighbours)

    def open(self) -> ContainerCluster:
        """The cluster of containers. Raises VicinalError where its head does not run."""
        return ContainerCluster.open(self.cluster, self.base)

    def observe(self) -> Observation:
        """Its head runs, or something is left of it."""
        if self.cluster not in cluster_names(self.base):
            return Observation(Condition.ABSENT)
        try:
            self.open()
        except VicinalError:
            return Observation(Condition.BROKEN, "its head does not run any more")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Whether there is the tool by which commands get into it."""
        del released  # it takes nothing that others have
        nsenter()

    def create(self) -> None:
        ContainerCluster.create(self.cluster, self.base, self.neighbours)

    def remove(self) -> None:
        """End it, and all that is in it."""
        remove_cluster(self.cluster, self.base)


@dataclass(frozen=True)
class ContainerResource(Undemanding):
    """One node."""

    KIND: ClassVar[str] = "node"

    spec: ContainerSpec
    runtime: str | None
    base: Path
    commands: Commands = field(default_factory=Commands)
    """What is run in it later (commands.py): with others it is another node."""

    @classmethod
    def of(cls, cluster: str, node: Node, cpus: tuple[int, ...], region: Path | None) -> Self:
        """A node as the cluster's file has it, on these processors."""
        spec = container_spec(cluster, node, cpus, region)
        return cls(spec, node.runtime, default_base(), node.commands)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.spec.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The head, and the region that it sees."""
        return (*(["region/main"] if self.spec.regions else []), "containers/main")

    def observe(self) -> Observation:
        """It runs, or is stopped, or something is left of it."""
        try:
            state = self._cluster().state(self.spec.name)
        except VicinalError:
            return Observation(Condition.ABSENT)  # without a head nothing is there
        return Observation(_CONDITIONS[state])

    def check(self, released: Held) -> None:
        """Whether there is a runtime, and what it is to see of the host's files is there."""
        del released  # it takes nothing that others have
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
        """Take it away; without its head it is gone already."""
        if self.spec.cluster not in cluster_names(self.base):
            return
        try:
            cluster = self._cluster()
        except VicinalError:
            return  # what is left goes with what is left of the head
        cluster.remove_node(self.spec.name)

    def _cluster(self) -> ContainerCluster:
        return ContainerCluster.open(self.spec.cluster, self.base)
