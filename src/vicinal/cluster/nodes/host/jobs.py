"""Jobs on a host node, which is the host itself."""

from collections.abc import Container, Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host.node import HostNode
from vicinal.cluster.nodes.job_nodes import Launchers, check_running
from vicinal.cluster.nodes.own_region import OwnRegion
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob
from vicinal.mpi.traffic import JobTraffic


class HostNodes:
    """The host node of a cluster, as OwnNodes; commands of other hosts cannot enter it."""

    def __init__(self, name: str, node: HostNode, region: Path | None) -> None:
        self._name = name
        self._node = node
        self._region = OwnRegion(region)

    def has(self, node: str) -> bool:
        return node == self._node.name

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        return self._node.exec_command(node, command, tty=tty)

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        check_running(self._name, self._node.ended_nodes(), 1)
        if job.path is MessagePath.REGION:
            job = self._region.in_it(job, self._name, str(self._region.path), alone=True)
        return launchers.at_head(job, self._node)

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def enter(self) -> None:
        """Raise VicinalError: launchers of other hosts cannot reach the node."""
        raise VicinalError(
            "its nodes are neither virtual machines nor containers", "check `vicinal status`"
        )

    def check_room(self, ranks: int, *, heap: bool) -> None:
        self._region.check_room(ranks, heap=heap)

    def check(self, names: Container[str] | None = None) -> None:
        """Raise VicinalError as enter() does."""
        del names
        self.enter()

    def traffic(self, job: int) -> JobTraffic | None:
        return self._region.traffic(job)
