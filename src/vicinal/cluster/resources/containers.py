"""Nodes that are containers, and the head that they stand on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.file.model import Commands, Node
from vicinal.cluster.file.network import NoNetwork
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.nodes.container.cluster import ContainerCluster, cluster_names, remove_cluster
from vicinal.cluster.nodes.container.head_process import nsenter
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.root import unreadable
from vicinal.cluster.nodes.container.runtime import NodeState
from vicinal.cluster.nodes.container.spec import Bind, ContainerSpec, RegionFile
from vicinal.cluster.nodes.container.state import default_base
from vicinal.cluster.plan.resource import Condition, Held, Json, Observation, Standing, Undemanding

REGION_NAME = "region"
"""The cluster's region is under this name in the nodes' exchange."""

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


class ContainersResource(Standing):
    """The head of a cluster's containers: their network, and where launchers run.

    It stays while its nodes are stopped, and takes nothing.
    """

    KIND: ClassVar[str] = "containers"

    def __init__(self, cluster: str, base: Path, neighbours: Neighbours | None = None) -> None:
        self._cluster = cluster
        self._base = base
        self.neighbours = neighbours
        """Where the cluster has containers on other hosts too."""

    @classmethod
    def of(cls, cluster: str, neighbours: Neighbours | None = None) -> Self:
        """The head that a cluster is to have."""
        return cls(cluster, default_base(), neighbours)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        given: Any = settings
        neighbours = Neighbours.from_dict(given.get("neighbours"))
        return cls(given["cluster"], Path(given["base"]), neighbours)

    @property
    def key(self) -> str:
        """Its key: a cluster has one on this host."""
        return f"{self.KIND}/main"

    @property
    def settings(self) -> Mapping[str, Json]:
        settings: dict[str, Json] = {"cluster": self._cluster, "base": str(self._base)}
        if self.neighbours is not None:
            settings["neighbours"] = self.neighbours.to_dict()
        return settings

    def open(self) -> ContainerCluster:
        """The cluster of containers. Raises VicinalError where its head does not run."""
        return ContainerCluster.open(self._cluster, self._base)

    def observe(self) -> Observation:
        """Its head runs, or something is left of it."""
        if self._cluster not in cluster_names(self._base):
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
        ContainerCluster.create(self._cluster, self._base, self.neighbours)

    def remove(self) -> None:
        """End it, and all that is in it."""
        remove_cluster(self._cluster, self._base)


class ContainerResource(Undemanding):
    """One node."""

    KIND: ClassVar[str] = "node"

    def __init__(
        self,
        spec: ContainerSpec,
        runtime: str | None,
        base: Path,
        commands: Commands | None = None,
    ) -> None:
        self._spec = spec
        self._runtime = runtime
        self._base = base
        self._commands = commands or Commands()
        """What is run in it later (commands.py): with others it is another node."""

    @classmethod
    def of(cls, cluster: str, node: Node, cpus: tuple[int, ...], region: Path | None) -> Self:
        """A node as the cluster's file has it, on these processors."""
        spec = container_spec(cluster, node, cpus, region)
        return cls(spec, node.runtime, default_base(), node.commands)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        given: Any = settings
        return cls(
            ContainerSpec.from_dict(given["spec"]),
            given["runtime"],
            Path(given["base"]),
            Commands.from_dict(given.get("commands", {})),
        )

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self._spec.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The head, and the region that it sees."""
        return (*(["region/main"] if self._spec.regions else []), "containers/main")

    @property
    def settings(self) -> Mapping[str, Json]:
        spec = json.loads(json.dumps(self._spec.to_dict()))  # lists, where it has tuples
        return {
            "spec": spec,
            "runtime": self._runtime,
            "base": str(self._base),
            "commands": {key: [*lines] for key, lines in self._commands.to_dict().items()},
        }

    def observe(self) -> Observation:
        """It runs, or is stopped, or something is left of it."""
        try:
            state = self._cluster().state(self._spec.name)
        except VicinalError:
            return Observation(Condition.ABSENT)  # without a head nothing is there
        return Observation(_CONDITIONS[state])

    def check(self, released: Held) -> None:
        """Whether there is a runtime, and what it is to see of the host's files is there."""
        del released  # it takes nothing that others have
        faults = Faults()
        with faults.catch():
            choose_runtime(self._runtime)
        faults.extend(unreadable(self._spec))
        faults.check()

    def create(self) -> None:
        self._cluster().create_node(self._spec, self._runtime)

    @property
    def runs(self) -> bool:
        return True

    def start(self) -> None:
        self._cluster().start_node(self._spec.name)

    def stop(self) -> None:
        self._cluster().stop_node(self._spec.name)

    def remove(self) -> None:
        """Take it away; without its head it is gone already."""
        if self._spec.cluster not in cluster_names(self._base):
            return
        try:
            cluster = self._cluster()
        except VicinalError:
            return  # what is left goes with what is left of the head
        cluster.remove_node(self._spec.name)

    def _cluster(self) -> ContainerCluster:
        return ContainerCluster.open(self._spec.cluster, self._base)
