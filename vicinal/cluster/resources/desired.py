"""What a cluster consists of: by its file, and by its journal."""

from collections.abc import Mapping, Sequence

from vicinal.cluster.file.model import Cluster
from vicinal.cluster.placement import place_nodes
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.resources.containers import ContainerResource, ContainersResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.errors import VicinalError
from vicinal.host.topology import Cpu, NumaNode

_KINDS = {kind.KIND: kind for kind in (RegionResource, ContainersResource, ContainerResource)}


def desired_resources(
    cluster: Cluster, cpus: Sequence[Cpu], numa: Sequence[NumaNode]
) -> list[Resource]:
    """All that a cluster is to have, in the order of making, on a host with these processors.

    Raises VicinalError for what this host cannot have.
    """
    placed = place_nodes(cluster, cpus, numa)
    region = RegionResource.of(cluster)
    nodes = [
        ContainerResource.of(cluster.name, node, placed[node.name], region.path)
        for node in cluster.nodes
    ]
    return [region, ContainersResource.of(cluster.name), *nodes]


def recorded_resources(entries: Mapping[str, Entry]) -> dict[str, Resource]:
    """What a journal speaks of, by its key. Raises VicinalError for kinds that we do not know."""
    return {key: _recorded(entry) for key, entry in entries.items()}


def _recorded(entry: Entry) -> Resource:
    kind = entry.key.partition("/")[0]
    if kind not in _KINDS:
        raise VicinalError(
            f"the cluster has a {kind}, which this version of Vicinal does not know",
            "use the version that made it",
        )
    return _KINDS[kind].from_settings(entry.settings)
