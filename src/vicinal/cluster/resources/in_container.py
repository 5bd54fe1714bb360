"""What is added to a node that is a container, when that runs: interfaces, cables, commands."""

from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.plan.resource import Undemanding
from vicinal.cluster.plan.state import cluster_directory


class InContainer(Undemanding):
    """What such a resource is known by, and how it finds its node."""

    cluster: str
    node: str
    base: Path
    """Where containers' state is."""

    @property
    def key(self) -> str:
        """Its key: a node has one of a kind."""
        return f"{self.KIND}/{self.node}"

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"node/{self.node}",)

    @property
    def _record(self) -> Path:
        """A file of its own beside the cluster's journal."""
        return cluster_directory(self.cluster) / f"{self.KIND}-{self.node}.json"

    def _open(self) -> ContainerCluster:
        """The containers of its cluster. Raises VicinalError where their head does not run."""
        return ContainerCluster.open(self.cluster, self.base)

    def _network(self) -> Path | None:
        """What stands for the node's network; None where it has none of its own, or is gone."""
        try:
            network = self._open().network_of(self.node)
        except VicinalError:
            return None
        return network if network is not None and network.exists() else None
