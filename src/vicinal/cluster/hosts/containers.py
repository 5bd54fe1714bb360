"""The containers of a cluster over several hosts, as a job's launcher needs them.

The launcher runs in the head of this host's containers, and reaches those of others by
far_shell.py.
"""

import secrets
import signal
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.entered import EnteredShares
from vicinal.cluster.hosts.far_shell import FarShell
from vicinal.cluster.hosts.guests import far_command
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.remote_shell import FAR_SHELL
from vicinal.cluster.nodes.job_nodes import START, Node, Places
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.cluster.nodes.own_region import OwnRegion
from vicinal.mpi.traffic import JobTraffic


class FarContainers:
    """All containers of a cluster over several hosts, as JobNodes; enter() first, close() last."""

    def __init__(
        self, records: Sequence[HostRecord], here: ContainerCluster, neighbours: Neighbours
    ) -> None:
        self._records = {record.host: record for record in records}
        self.here = here
        """Those of this host."""
        self._neighbours = neighbours
        self._shares = EnteredShares(records)
        self._shell: FarShell | None = None
        self._name = f"far-{secrets.token_hex(4)}"

    def enter(self, ranks: int | None, *, heap: bool) -> None:
        """See that the containers run; `ranks`: and have regions with room for so many.

        Raises VicinalError.
        """
        self._shares.enter([node.name for node in self.nodes], ranks, heap=heap)
        self._shell = FarShell(self.here.exchange / self._name, self._far_command)

    def close(self) -> None:
        """End the connections."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
        self._shares.close()

    def traffic(self, job: int) -> JobTraffic | None:
        """What the regions of all hosts say of the job of this number; None without regions."""
        return self._shares.traffic(job)

    @property
    def nodes(self) -> list[Node]:
        """Those of this host as they run, and all of the others."""
        own = {node.name: node for node in self.here.nodes}
        others = self._neighbours.others
        return [
            own.get(name) or Node(name, others.get(name, ""), "")
            for record in self._records.values()
            for name in record.containers
        ]

    @property
    def places(self) -> Places:
        """Where nodes find what is theirs; the launcher's address says which of the heads it is."""
        return Places(launcher=self._neighbours.head)

    @property
    def exchange(self) -> Path:
        """The directory for regions of this host."""
        return self.here.exchange

    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""
        return self.here.seen_from_host(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """The command line that runs `command` at the head of this host."""
        shell = f"{FAR_SHELL}={EXCHANGE}/{self._name}"
        return self.here.head_command(["env", shell, *command], directory)

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill what head_command() started, if it has not ended, and reap it."""
        self.here.end_command(running)

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what head_command() started."""
        self.here.signal_command(running, number)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """The processes of jobs on this host; those of others cannot be seen."""
        return self.here.processes(node)

    def clear(self) -> None:
        """Kill what jobs left on this host; on others it ends with the launcher."""
        self.here.clear()

    def ended_nodes(self) -> list[str]:
        """Names of nodes that do not run. Raises VicinalError where another host has some."""
        self._shares.check()
        return self.here.ended_nodes()

    def _far_command(self, node: str, command: Sequence[str]) -> list[str]:
        hosts = {name: each for each in self._records.values() for name in each.containers}
        return far_command(hosts[node], node, command)


class OwnContainers:
    """What a host's agent answers of its containers while a job runs in them."""

    def __init__(self, cluster: ContainerCluster, region: Path | None) -> None:
        self._cluster = cluster
        self._region = OwnRegion(region)

    def enter(self) -> None:
        """See that they run. Raises VicinalError."""
        self.check()

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError where they have no region with room for so many ranks, or no heap."""
        self._region.check_room(ranks, heap=heap)

    def traffic(self, job: int) -> JobTraffic | None:
        """What their region says of the job of this number; None where they have none."""
        return self._region.traffic(job)

    def check(self, names: Container[str] | None = None) -> None:
        """Raise VicinalError for one that does not run."""
        del names
        ended = self._cluster.ended_nodes()
        if ended:
            raise VicinalError(f"{', '.join(ended)} does not run", START)
