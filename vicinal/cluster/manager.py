"""Virtual clusters, by their names: what is there of them, making them, and taking them away."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vicinal.cluster.containers.cluster import Container, ContainerCluster
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.plan.applying import Show, apply, take_away
from vicinal.cluster.plan.planning import Action, Plan, Step, make_plan, removal
from vicinal.cluster.plan.resource import Condition, Resource
from vicinal.cluster.plan.state import cluster_names, journal_of, sole_command
from vicinal.cluster.resources.containers import ContainersResource
from vicinal.cluster.resources.desired import desired_resources, recorded_resources
from vicinal.cluster.resources.region import RegionResource
from vicinal.errors import VicinalError
from vicinal.host.system import Host
from vicinal.host.topology import read_cpus, read_nodes

DEFAULT_FILE = Path("cluster.yaml")


@dataclass(frozen=True)
class Piece:
    """One thing of a cluster, as it is now."""

    key: str
    condition: Condition
    why: str


@dataclass(frozen=True)
class ClusterState:
    """What is there of a cluster."""

    name: str
    pieces: tuple[Piece, ...]
    containers: tuple[Container, ...]
    region: Path | None
    limitations: tuple[str, ...]
    """What the host did not give it, as phrases."""

    @property
    def whole(self) -> bool:
        """Whether everything runs."""
        return bool(self.pieces) and all(
            piece.condition is Condition.READY for piece in self.pieces
        )


def find_name(named: str | None) -> str:
    """The name of the cluster that a command is for: named, or by its file, or the only one.

    Raises VicinalError where it is not clear which.
    """
    if named is not None:
        is_file = os.sep in named or named.endswith((".yaml", ".yml"))
        return read_cluster(Path(named)).name if is_file else named
    if DEFAULT_FILE.is_file():
        return read_cluster(DEFAULT_FILE).name
    names = cluster_names()
    if len(names) == 1:
        return names[0]
    there = f"there are {', '.join(names)}" if names else "none is up"
    raise VicinalError(
        f"which cluster is not clear: there is no {DEFAULT_FILE} here, and {there}",
        "name one, or its file",
    )


def plan_cluster(cluster: Cluster) -> Plan:
    """What `up` would do now. Changes nothing. Raises VicinalError for what cannot be."""
    recorded = journal_of(cluster.name).entries()
    return make_plan(_desired(cluster), recorded, recorded_resources(recorded))


def bring_up(cluster: Cluster, show: Show = lambda _: None) -> Plan:
    """Make what is missing of a cluster; returns what was done.

    What fails or is interrupted is rolled back. Raises VicinalError.
    """
    with sole_command(cluster.name):
        plan = plan_cluster(cluster)
        apply(plan, journal_of(cluster.name), show)
        return plan


def take_down(name: str, show: Show = lambda _: None) -> bool:
    """Take a cluster away, however much of it is there; returns whether there was anything.

    Raises VicinalError where something could not be taken away; the rest is gone then.
    """
    if name not in cluster_names():
        return False
    with sole_command(name):
        journal = journal_of(name)
        entries = journal.entries()
        take_away(removal(entries, recorded_resources(entries)), journal, show)
        return True


def stop_cluster(name: str, show: Show = lambda _: None) -> None:
    """End what runs in the nodes, the last first; they stay. Raises VicinalError."""
    with _recorded(name) as resources:
        for resource in reversed(resources.values()):
            if resource.runs and resource.observe().condition is Condition.READY:
                show(Step(Action.STOP, resource, "it is to stop"))
                resource.stop()


def start_cluster(name: str, show: Show = lambda _: None) -> None:
    """Let stopped nodes run again. Raises VicinalError."""
    with _recorded(name) as resources:
        for resource in resources.values():
            if resource.observe().condition is Condition.STOPPED:
                show(Step(Action.START, resource, "it is stopped"))
                resource.start()


def cluster_state(name: str) -> ClusterState:
    """What is there of a cluster now. Raises VicinalError where nothing is."""
    resources = _resources(name)
    pieces = []
    for key, entry in journal_of(name).entries().items():
        observed = resources[key].observe()
        condition, why = observed.condition, observed.why
        if not entry.whole:
            condition, why = Condition.BROKEN, "a command was interrupted at it"
        pieces.append(Piece(key, condition, why))
    containers: tuple[Container, ...] = ()
    limitations: tuple[str, ...] = ()
    head = resources.get("containers/main")
    if isinstance(head, ContainersResource) and head.observe().condition is Condition.READY:
        opened = head.open()
        containers = tuple(opened.containers())
        limitations = tuple(dict.fromkeys(opened.limitations))
    region = resources.get("region/main")
    return ClusterState(
        name=name,
        pieces=tuple(pieces),
        containers=containers,
        region=region.path if isinstance(region, RegionResource) else None,
        limitations=limitations,
    )


def open_containers(name: str) -> ContainerCluster:
    """The running containers of a cluster. Raises VicinalError where there are none."""
    head = _resources(name).get("containers/main")
    if not isinstance(head, ContainersResource):
        raise VicinalError(f"the cluster {name} has no containers", "see `vicinal status`")
    return head.open()


@contextmanager
def _recorded(name: str) -> Iterator[dict[str, Resource]]:
    _check_there(name)
    with sole_command(name):
        yield _resources(name)


def _resources(name: str) -> dict[str, Resource]:
    _check_there(name)
    return recorded_resources(journal_of(name).entries())


def _check_there(name: str) -> None:
    if name not in cluster_names():
        raise VicinalError(f"there is no cluster {name}", "make it with `vicinal up`")


def _desired(cluster: Cluster) -> list[Resource]:
    host = Host()
    allowed = os.sched_getaffinity(0)
    cpus = [cpu for cpu in read_cpus(host) if cpu.number in allowed]
    return desired_resources(cluster, cpus, read_nodes(host))
