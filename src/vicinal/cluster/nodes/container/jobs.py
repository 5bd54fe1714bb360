"""Jobs in a cluster's containers: the checks before a job, and where the launcher runs."""

import signal
import subprocess
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.layout import REGION
from vicinal.cluster.nodes.container.root import OWN_TEMPORARY, shown
from vicinal.cluster.nodes.container.runtime import NodeState
from vicinal.cluster.nodes.job_nodes import (
    START,
    JobNodes,
    JobPaths,
    Launchers,
    Node,
    check_joined,
    check_running,
)
from vicinal.cluster.nodes.own_region import OwnRegion
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import Job
from vicinal.mpi.placement import place
from vicinal.mpi.program import HIDDEN, check_visible
from vicinal.mpi.started import StartedJob
from vicinal.mpi.traffic import JobTraffic

_SHOW = "let `mounts` of the cluster's file show its directory, or go to one that the nodes see"


class ContainerNodes:
    """The containers of a cluster on this host, as OwnNodes."""

    def __init__(
        self, name: str, find: Callable[[], ContainerCluster], region: Path | None
    ) -> None:
        self._name = name
        self._find = find
        self._region = OwnRegion(region)

    @cached_property
    def cluster(self) -> ContainerCluster:
        """The cluster of containers. Raises VicinalError if its head does not run."""
        return self._find()

    def has(self, node: str) -> bool:
        return self.cluster.state(node) is not NodeState.ABSENT

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        return self.cluster.exec_command(node, command, tty=tty)

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        cluster = self.cluster
        check_running(self._name, cluster.ended_nodes(), len(cluster.containers()))
        count = len(cluster.nodes)
        if count > 1:
            check_reaches_nodes(job)
        check_seen(job, cluster)
        nodes = _nodes_for(job, cluster)
        if job.path is MessagePath.REGION:
            job = self._region.in_it(job, self._name, REGION, alone=count == 1)
        return launchers.at_head(job, nodes)

    def close(self) -> None:
        """Do nothing: the other methods open no connections."""

    def enter(self) -> None:
        self.check()

    def check_room(self, ranks: int, *, heap: bool) -> None:
        self._region.check_room(ranks, heap=heap)

    def check(self, names: Container[str] | None = None) -> None:
        """Raise VicinalError if a node does not run; all nodes are checked, not only `names`."""
        del names
        ended = self.cluster.ended_nodes()
        if ended:
            raise VicinalError(f"{', '.join(ended)} does not run", START)

    def traffic(self, job: int) -> JobTraffic | None:
        return self._region.traffic(job)


def check_reaches_nodes(job: Job) -> None:
    """Raise VicinalError if a job's transport does not reach from node to node."""
    if job.path is MessagePath.SHARED_MEMORY:
        raise VicinalError("the path shared-memory does not connect nodes", "use another path")


def check_seen(job: Job, cluster: ContainerCluster) -> None:
    """Raise VicinalError if the program or the working directory is not visible in a node."""
    directory = job.directory or Path.cwd()
    for container in cluster.containers():
        binds = container.spec.binds
        seen = [Path(bind.source) for bind in binds if bind.source == bind.destination]
        seen += shown(container.spec)
        for path in (Path(job.program[0]), directory):
            check_visible(path, (*HIDDEN, OWN_TEMPORARY), seen, _SHOW)


def _nodes_for(job: Job, cluster: ContainerCluster) -> JobNodes:
    """Return the nodes of a job. Raises VicinalError if its launcher cannot reach all nodes."""
    alone = {each.spec.name for each in cluster.containers() if not each.spec.joined}
    placed = [each.node for each in place(job.ranks, [node.name for node in cluster.nodes])]
    check_joined(placed, alone)
    return LoneNode(cluster, placed[0]) if placed[0] in alone else cluster


class LoneNode:
    """One node without a network, as JobNodes: launchers run in the node, not at the head."""

    def __init__(self, cluster: ContainerCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self._cluster.nodes if node.name == self._name]

    @property
    def job_paths(self) -> JobPaths:
        return self._cluster.job_paths

    @property
    def exchange(self) -> Path:
        return self._cluster.exchange

    def seen_from_host(self, path: str) -> Path:
        return self._cluster.seen_from_host(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """Return the command line that runs `command` in the node."""
        enter = [layout.ENTER, "--directory", str(directory or Path.cwd()), self._name]
        return self._cluster.head_command([*enter, *command], Path("/"))

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        self._cluster.end_command(running)

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to the first process of the job, the process with the lowest PID.

        No process forwards signals into the node.
        """
        del running
        processes = sorted(self.processes(), key=lambda process: process.pid)
        with suppress(psutil.Error):
            for process in processes[:1]:
                process.send_signal(number)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        return self._cluster.processes(node or self._name)

    def clear(self) -> None:
        self._cluster.clear()

    def ended_nodes(self) -> list[str]:
        return [name for name in self._cluster.ended_nodes() if name == self._name]
