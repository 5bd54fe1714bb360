"""A Slurm job with nodes: the plugin's request, and this host's share of the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster, Node
from vicinal.cluster.file.network import NoNetwork, VfNetwork
from vicinal.integrations.slurm.granted_vfs import GrantedVf
from vicinal.integrations.slurm.node_vfs import check_names_nothing_else


@dataclass(frozen=True)
class NodesJob:
    """The plugin's request for a job on this host."""

    job: int
    directory: Path
    """A file system that only the supervisor and its children see; it ends with the supervisor."""
    file: Path
    """The cluster file."""
    hosts: int
    """Number of the job's hosts."""
    host: int
    """This host's index among them, from 0."""
    tasks: int
    """Number of tasks on this host for which the region needs slots."""
    max_bytes: int
    """The largest size of a region."""
    channel: int | None = None
    """Descriptor of the channel to root for nodes' networks (slurm/supervisor_network.h)."""
    vfs: tuple[GrantedVf, ...] = ()
    """The job's VFs for its nodes on this host, in the plugin's order."""
    host_network: bool = False
    """Whether an administrator lets nodes use the hosts' network if they have no network of
    their own.
    """

    secret: bytes | None = field(default=None, repr=False)
    """The job's secret: equal on all of its hosts, known only to its user; None if there is
    none.
    """

    @property
    def alone(self) -> bool:
        """Whether the job is on this host only."""
        return self.hosts == 1


def share_of(job: NodesJob, nodes: Sequence[Node]) -> Sequence[Node]:
    """This host's nodes: all nodes are spread evenly over the job's hosts, consecutive on each.

    Raises VicinalError if a host would have no node.
    """
    if len(nodes) < job.hosts:
        raise VicinalError(
            f"{job.file} has {_counted(len(nodes), 'node')}, and the job has {job.hosts} hosts",
            "give the job at most as many hosts as nodes (srun -N), or add nodes to the file",
        )
    first, end = (len(nodes) * number // job.hosts for number in (job.host, job.host + 1))
    return nodes[first:end]


def check_cluster(cluster: Cluster) -> BackEnd:
    """The back end of all nodes. Raises VicinalError for settings that a Slurm job cannot have."""
    if cluster.hosts:
        raise VicinalError(
            f"{cluster.file} names hosts, and Slurm chooses a job's hosts",
            "remove hosts and nodes[].host: the nodes are spread over the job's hosts",
        )
    kinds = {node.backend for node in cluster.nodes}
    if BackEnd.HOST in kinds:
        raise VicinalError(
            f"{cluster.file} has a host node, which is the host itself",
            "run the job without a cluster file: srun --vicinal",
        )
    if len(kinds) > 1:
        raise VicinalError(
            f"{cluster.file} has containers and virtual machines, which have no network between "
            "them",
            "give each kind a job of its own",
        )
    for node in cluster.nodes:
        if isinstance(node.network, VfNetwork):
            check_names_nothing_else(cluster, node, node.network)
        elif node.network is not None and not isinstance(node.network, NoNetwork):
            raise VicinalError(
                f"{cluster.file} gives {node.name!r} a network of the host, which a Slurm job may "
                "not use",
                "remove the node's network",
            )
    return kinds.pop()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
