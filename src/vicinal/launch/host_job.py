"""A job over several hosts, started by the MPI library's own launcher through ssh or Slurm.

Before the ranks start, an agent on each host creates a region for the host's ranks, under the same
name on all hosts. The agents remove the regions. Ranks of different hosts reach each other over the
network.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.remote.agent_connection import AgentConnection
from vicinal.cluster.hosts.remote.hosts import Host, spread
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.launch.host_agent import MARK, HostRequest
from vicinal.launch.host_files import HostFiles, new_mark
from vicinal.launch.job_environment import inherited, job_environment, with_preloads
from vicinal.launch.launcher import host_launcher
from vicinal.launch.launcher_noise import LauncherErrors
from vicinal.launch.running import job_label
from vicinal.mpi.environment import PROVIDER_FILE, MessagePath, no_local_notes, provider_directory
from vicinal.mpi.job import Job, check_names, in_directory
from vicinal.mpi.libfabric import check_job_loads_provider
from vicinal.mpi.libraries import Family
from vicinal.mpi.preloading import pairs_notes, preloaded_libraries
from vicinal.mpi.started import StartedJob, Stream
from vicinal.mpi.traffic import JobTraffic, merge_traffic
from vicinal.region.creation import default_members

AGENT_MODULE = "vicinal.launch.host_agent"
_LOST_SECONDS = 15.0
"""How long a launcher may take to notice that a host is gone, after this process noticed it."""


class HostJob(StartedJob):
    """A job over hosts from its start to its end; as a context manager it leaves nothing behind.

    Raises VicinalError if the job cannot be started; the message names the host that is the cause.
    """

    def __init__(
        self,
        job: Job,
        hosts: Sequence[Host],
        *,
        reach: Reach = Reach.SSH,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> None:
        super().__init__()
        self.job = job
        self._reach = reach
        self.mpi, found = job.resolved_mpi()
        self.path = MessagePath(job.path)
        self.lost: list[str] = []
        """Hosts whose connection ended while the job ran."""
        self._connections: list[HostConnection] = []
        self._lost_since: float | None = None
        if self.path is MessagePath.REGION:
            check_job_loads_provider(self.mpi)
        directory = job.directory or Path.cwd()
        placements = spread(job.ranks, hosts)
        mark = new_mark()
        there = HostFiles.of_job(mark)
        region = f"file:{there.region}" if self.path is MessagePath.REGION else None
        program = with_preloads(job, self.mpi, job.program)
        if job.files:
            check_names(job.files)
            program = in_directory(str(there.files), program)
        variables = job_environment(job, self.mpi, region, placements) | dict(job.environment)
        self.notes = no_local_notes(variables, os.environ) + pairs_notes(self.mpi, self.path)
        command, environment = host_launcher(
            self.mpi, placements, program, inherited(self.mpi, found=found), variables, reach
        )
        used = {placement.node: placement.ranks for placement in placements}
        try:
            self._prepare(
                [host for host in hosts if host.name in used],
                HostRequest(
                    version=vicinal.__version__,
                    needed=self._needed(),
                    directory=str(directory),
                    mark=mark,
                    region=region is not None,
                    members=job.members or default_members(max(used.values())),
                    section_bytes=job.section_bytes,
                    heap_bytes=job.heap_bytes if job.heap else None,
                    label=job.label or job_label(Path(job.program[0])),
                    files=dict(job.files),
                    launcher_host=self._launcher_host(hosts, environment),
                ),
            )
            self._errors = LauncherErrors(self.mpi, stderr)
            with self._errors:
                self._launcher = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=directory,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=self._errors.stream,
                    start_new_session=True,  # this process forwards signals, in order
                )
        except BaseException:
            self.close()
            raise

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the job's end and return its status in a shell's convention.

        Raises VicinalError `timeout` seconds after the job's start. Also raises it if a host is
        gone and the launcher does not end by itself, or ends with success. The job still exists
        then, and close() ends it.
        """
        status = super().wait(timeout)
        self._errors.finish()
        if status == 0:
            # Open MPI's launcher may end with 0 although a host with ranks is gone.
            for connection in self._connections:
                connection.check()
        return status

    def check_alive(self) -> None:
        """Raise VicinalError if a host has been gone for so long that the launcher should have
        noticed.
        """
        for connection in self._connections:
            if connection.is_lost and connection.host.name not in self.lost:
                self.lost.append(connection.host.name)
                self._lost_since = self._lost_since or time.monotonic()
        if self._lost_since is not None and time.monotonic() - self._lost_since > _LOST_SECONDS:
            raise VicinalError(
                f"the connection to {', '.join(self.lost)} was lost while the job ran",
                "check that the host is up, and run the job again",
            )

    def forward(self, number: signal.Signals) -> None:
        if self._launcher is not None and self._launcher.poll() is None:
            self._launcher.send_signal(number)

    def traffic(self) -> JobTraffic | None:
        """The traffic in the regions of all hosts; None for a job without regions.

        Raises VicinalError if a host does not report its region.
        """
        if self.path is not MessagePath.REGION:
            return None
        try:
            return merge_traffic(JobTraffic.from_dict(each.traffic()) for each in self._connections)
        except ValueError as error:
            raise VicinalError(
                "a host's report about its region cannot be read", "run the job again"
            ) from error

    def close(self) -> None:
        """End all processes that still run, and have the hosts remove their regions. Can be
        repeated.
        """
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            # When the launcher is gone, its daemons end the ranks. Agents end any other ranks.
            launcher.kill()
            launcher.wait()
            self._errors.finish()
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.close()

    def _needed(self) -> list[str]:
        needed = [str(self.job.program[0]), str(self.mpi.launcher)]
        if self.path is MessagePath.REGION:
            needed.append(str(provider_directory() / PROVIDER_FILE))
        environment = {**os.environ, **self.job.environment}
        return needed + preloaded_libraries(self.mpi, self.path, environment, heap=False)

    def _launcher_host(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> str:
        """The name by which daemons reach the launcher; empty for launchers that give addresses."""
        named = self.mpi.family is Family.MPICH and "HYDRA_IFACE" not in environment
        return socket.gethostname() if named and not all(each.is_this for each in hosts) else ""

    def _prepare(self, hosts: Sequence[Host], request: HostRequest) -> None:
        """Have all hosts prepare at the same time."""
        for host in hosts:
            connection = HostConnection(host, self._reach)
            self._connections.append(connection)
            connection.ask(request)
        for connection in self._connections:
            connection.answered()


class HostConnection(AgentConnection):
    """An agent on a host, from ask() to close()."""

    module = AGENT_MODULE
    mark = MARK
    part = "the job"

    def ask(self, request: HostRequest) -> None:
        """Send the request; answered() tells whether the host could fulfil it."""
        self._send(json.dumps(request.to_dict()))

    def answered(self) -> None:
        """Wait until the host is ready. Raises a VicinalError that names the host if it fails."""
        self._receive()

    def traffic(self) -> dict[str, Any]:
        """What the host's region says of the job. Raises VicinalError if the host does not report
        it.
        """
        self._send("traffic")
        found = self._receive().get("traffic")
        if not isinstance(found, dict):
            raise self._trouble(
                "it reports nothing about its region", "check whether the host is busy"
            )
        return found

    def check(self) -> None:
        """Raise VicinalError if the host does not answer any more."""
        self._send("here?")
        self._receive()
