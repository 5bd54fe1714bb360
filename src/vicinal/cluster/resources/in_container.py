"""Common base of additions to a running container: interfaces, cables, commands."""

from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.plan.resource import Undemanding
from vicinal.cluster.plan.state import cluster_directory


class InContainer(Undemanding):
    """An addition to a container, and its way to the container."""

    cluster: str
    node: str
    base: Path
    """Directory of the containers' state."""

    @property
    def key(self) -> str:
        """KIND/NODE: a node has one resource of a kind."""
        return f"{self.KIND}/{self.node}"

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"node/{self.node}",)

    @property
    def _record(self) -> Path:
        """The resource's own file beside the cluster's journal."""
        return cluster_directory(self.cluster) / f"{self.KIND}-{self.node}.json"

    def _open(self) -> ContainerCluster:
        """Open the cluster's containers. Raises VicinalError if their head does not run."""
        return ContainerCluster.open(self.cluster, self.base)

    def _network(self) -> Path | None:
        """Return the file of the node's network namespace; None without one."""
        try:
            network = self._open().network_of(self.node)
        except VicinalError:
            return None
        return network if network is not None and network.exists() else None
