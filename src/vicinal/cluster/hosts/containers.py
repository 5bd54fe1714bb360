"""The containers of a cluster over several hosts, for the launcher of a job.

The launcher runs in the head of this host's containers, and reaches containers of other hosts by
far_shell.py.
"""

import secrets
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from vicinal.cluster.hosts.entered import EnteredHostParts
from vicinal.cluster.hosts.far_shell import FarShell
from vicinal.cluster.hosts.guests import far_command, record_of
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.jobs import check_reaches_nodes, check_seen
from vicinal.cluster.nodes.container.layout import REGION
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.remote_shell import FAR_SHELL
from vicinal.cluster.nodes.job_nodes import JobPaths, Launchers, Node
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob


class FarContainers:
    """All containers of a cluster over several hosts, as JobNodes; call close() at the end."""

    def __init__(
        self, records: Sequence[HostRecord], here: ContainerCluster, neighbours: Neighbours
    ) -> None:
        self._records = {record.host: record for record in records}
        self._here = here
        self._neighbours = neighbours
        self._host_parts = EnteredHostParts(records)
        self._shell: FarShell | None = None
        self._name = f"far-{secrets.token_hex(4)}"

    def has(self, node: str) -> bool:
        return any(node in record.nodes for record in self._records.values())

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        record = record_of(self._records.values(), node)
        return far_command(record, node, command, tty=tty)

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        check_reaches_nodes(job)
        check_seen(job, self._here)
        in_region = job.path is MessagePath.REGION
        names = [node.name for node in self.nodes]
        self._host_parts.enter(names, job.ranks if in_region else None, heap=job.heap)
        self._shell = FarShell(self.exchange / self._name, self._far_command)
        if in_region:  # each host's region, which has the same name on all hosts
            job = replace(job, region=f"file:{REGION}")
        return launchers.at_head(job, self, self._host_parts.traffic)

    def close(self) -> None:
        """Close the connections to the hosts."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
        self._host_parts.close()

    @property
    def nodes(self) -> list[Node]:
        """The running containers of this host, and all containers of other hosts."""
        own = {node.name: node for node in self._here.nodes}
        others = self._neighbours.others
        return [
            own.get(name) or Node(name, others.get(name, ""), "")
            for record in self._records.values()
            for name in record.containers
        ]

    @property
    def job_paths(self) -> JobPaths:
        """The nodes' paths; the launcher's address tells nodes which host's head it runs in."""
        return JobPaths(launcher=self._neighbours.head)

    @property
    def exchange(self) -> Path:
        """The directory for regions of this host."""
        return self._here.exchange

    def seen_from_host(self, path: str) -> Path:
        """Return the path by which this process reaches a file or directory of the head."""
        return self._here.seen_from_host(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """Return the command line that runs `command` at the head of this host."""
        shell = f"{FAR_SHELL}={EXCHANGE}/{self._name}"
        return self._here.head_command(["env", shell, *command], directory)

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill and reap a process that head_command() started."""
        self._here.end_command(running)

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a process that head_command() started."""
        self._here.signal_command(running, number)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """Return the processes of jobs on this host; processes on other hosts are not visible."""
        return self._here.processes(node)

    def clear(self) -> None:
        """Kill processes that jobs left on this host; on other hosts they end with the launcher."""
        self._here.clear()

    def ended_nodes(self) -> list[str]:
        """Return the names of this host's nodes that ended.

        Raises VicinalError if a node of another host ended.
        """
        self._host_parts.check()
        return self._here.ended_nodes()

    def _far_command(self, node: str, command: Sequence[str]) -> list[str]:
        hosts = {name: each for each in self._records.values() for name in each.containers}
        return far_command(hosts[node], node, command)
