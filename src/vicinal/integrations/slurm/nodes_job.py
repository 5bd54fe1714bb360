"""A job of Slurm's whose nodes are made on this host: what is asked for, and the host's share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster, Node
from vicinal.cluster.file.network import FunctionNetwork, NoNetwork
from vicinal.integrations.slurm.lent_functions import LentFunction
from vicinal.integrations.slurm.node_functions import check_names_nothing_else


@dataclass(frozen=True)
class NodesJob:
    """What the plugin says of a job."""

    job: int
    directory: Path
    """A file system that only the keeper and what it starts see, and that ends with it."""
    file: Path
    """The cluster's."""
    hosts: int
    """How many hosts the job has."""
    host: int
    """Which of them this is, from 0 on."""
    tasks: int
    """How many there is to be room for on this host."""
    max_bytes: int
    """What a region may take."""
    channel: int | None = None
    """Descriptor by which root is told of nodes' networks (slurm/supervisor_network.h)."""
    functions: tuple[LentFunction, ...] = ()
    """Those that the job has for its nodes on this host, in the plugin's order."""
    host_network: bool = False
    """Whether an administrator lets nodes be in the hosts' network where they have none alone."""

    secret: bytes | None = field(default=None, repr=False)
    """The same on all hosts of the job, and nobody's but its user's; None where none is known."""

    @property
    def alone(self) -> bool:
        """Whether the job is on this host only."""
        return self.hosts == 1


def share_of(job: NodesJob, nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes of this host: they are spread evenly over the job's hosts, in a row on each.

    Raises VicinalError where hosts would have none.
    """
    if len(nodes) < job.hosts:
        raise VicinalError(
            f"{job.file} has {_counted(len(nodes), 'node')}, and the job {job.hosts} hosts",
            "give the job no more hosts than there are nodes (srun -N), or add nodes to the file",
        )
    first, end = (len(nodes) * number // job.hosts for number in (job.host, job.host + 1))
    return nodes[first:end]


def check_cluster(cluster: Cluster) -> BackEnd:
    """What all nodes are made of. Raises VicinalError for what a job of Slurm's cannot have."""
    if cluster.hosts:
        raise VicinalError(
            f"{cluster.file} names hosts, and a job's hosts are chosen by Slurm",
            "leave out hosts and nodes[].host: the nodes are spread over the job's hosts",
        )
    kinds = {node.backend for node in cluster.nodes}
    if BackEnd.NATIVE in kinds:
        raise VicinalError(
            f"{cluster.file} has a native node, which is the host itself",
            "run the job without a cluster's file for that: srun --vicinal",
        )
    if len(kinds) > 1:
        raise VicinalError(
            f"{cluster.file} has containers and virtual machines, which have no network between "
            "them",
            "give each kind a job of its own",
        )
    for node in cluster.nodes:
        if isinstance(node.network, FunctionNetwork):
            check_names_nothing_else(cluster, node, node.network)
        elif node.network is not None and not isinstance(node.network, NoNetwork):
            raise VicinalError(
                f"{cluster.file} gives {node.name} a network of the host's, which a job of "
                "Slurm's has no right to",
                "leave out its network",
            )
    return kinds.pop()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
