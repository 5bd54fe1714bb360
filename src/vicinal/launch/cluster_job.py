"""Starts a job on all nodes of a virtual cluster, of containers or of virtual machines."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from vicinal.cluster.manager import open_nodes
from vicinal.cluster.nodes.job_nodes import JobGuests, JobNodes
from vicinal.launch.guest_job import RunningGuestJob
from vicinal.launch.running import RunningJob
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob, Stream
from vicinal.mpi.traffic import JobTraffic


@contextmanager
def job_on_cluster(
    job: Job,
    name: str,
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Iterator[StartedJob]:
    """Start a job on the nodes of the cluster with this name, through their shared region.

    Nothing of the job is left at the end of the context. Raises VicinalError if the job cannot be
    started.
    """
    launchers = _Launchers(stdin, stdout, stderr)
    with closing(open_nodes(name)) as nodes, nodes.start_job(job, launchers) as running:
        yield running


class _Launchers:
    """Both ways to start a job, with the same streams. Implements Launchers of
    nodes/job_nodes.py.
    """

    def __init__(self, stdin: Stream, stdout: Stream, stderr: Stream) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr

    def at_head(
        self,
        job: Job,
        nodes: JobNodes,
        regions: Callable[[int], JobTraffic | None] | None = None,
    ) -> StartedJob:
        return RunningJob(
            job,
            nodes,
            regions=regions,
            stdin=self._stdin,
            stdout=self._stdout,
            stderr=self._stderr,
        )

    def in_first_guest(self, job: Job, guests: JobGuests) -> StartedJob:
        return RunningGuestJob(
            job,
            guests,
            stdin=self._stdin,
            stdout=self._stdout,
            stderr=self._stderr,
        )
