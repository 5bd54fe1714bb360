"""The containers of a cluster over several hosts, for the launcher of a job.

The launcher runs in the head of this host's containers, which has no network except the cluster's.
So the launcher sends a command for another host to the Vicinal command outside the head, by a
socket that both see, with the command's standard streams. The Vicinal command (FarShell) reaches
the other host by ssh. The launcher's side is nodes/container/remote_shell.py.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread

import psutil

from vicinal.cluster.hosts.entered import EnteredHostParts
from vicinal.cluster.hosts.guests import far_command, record_of
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.jobs import check_reaches_nodes, check_seen
from vicinal.cluster.nodes.container.layout import REGION
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.remote_shell import FAR_SHELL, STREAMS
from vicinal.cluster.nodes.job_nodes import JobPaths, Launchers, Node
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob

_LONGEST = 4 << 20
_ASK_SECONDS = 30.0
_FAILED = 255
"""The exit status of ssh if its connection fails."""


class FarShell:
    """A server that runs commands in nodes of other hosts, until close().

    `path` is the path of its socket. `command` returns the command line on this host that runs a
    command in a node.
    """

    def __init__(self, path: Path, command: Callable[[str, Sequence[str]], list[str]]) -> None:
        self._path = path
        self._command = command
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End the running commands, and remove the socket."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.terminate()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                asked, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(asked,), daemon=True).start()

    def _serve(self, asked: socket.socket) -> None:
        status = _FAILED
        with asked, suppress(OSError, ValueError, KeyError):
            asked.settimeout(_ASK_SECONDS)
            _, streams, _, _ = socket.recv_fds(asked, 1, STREAMS)
            try:
                with asked.makefile("rb") as lines:
                    request = json.loads(lines.readline(_LONGEST))
                asked.settimeout(None)
                variables = [f"{name}={value}" for name, value in request["environment"].items()]
                words = ["env", *variables, "/bin/sh", "-c", str(request["command"])]
                status = self._run(self._command(str(request["node"]), words), streams, asked)
            finally:
                for stream in streams:
                    os.close(stream)
            asked.sendall(f"{status}\n".encode())

    def _run(self, line: Sequence[str], streams: Sequence[int], asked: socket.socket) -> int:
        with self._lock:
            if self._closed:
                return _FAILED
            process = subprocess.Popen(
                line,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,  # signals go through the launcher
            )
            self._running.add(process)
        # If the requesting process is killed, its command ends too.
        Thread(target=_end_with, args=(asked.dup(), process), daemon=True).start()
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)


def _end_with(asked: socket.socket, process: subprocess.Popen[bytes]) -> None:
    with asked, suppress(OSError):
        asked.recv(1)
        if process.poll() is None:
            process.terminate()


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
