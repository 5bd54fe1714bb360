"""Starts a job on the nodes of a cluster, supervises it, and ends it.

Rank 0 reads the job's standard input from a FIFO, without a launcher in between, because launchers
treat input differently. Open MPI's launcher (PRRTE 3.0) never tells rank 0 where the input ends,
and Hydra lets the other ranks wait for their input. The other ranks get empty input.
"""

import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.job_nodes import JobNodes
from vicinal.launch.cores import usable_cpus
from vicinal.launch.job_environment import inherited, job_environment, past_shells, with_preloads
from vicinal.launch.launcher import launcher
from vicinal.launch.launcher_noise import LauncherErrors
from vicinal.mpi.environment import MessagePath, no_local_notes
from vicinal.mpi.job import CompletedJob, Job, with_files
from vicinal.mpi.libfabric import check_job_loads_provider
from vicinal.mpi.placement import Placement, place
from vicinal.mpi.preloading import pairs_notes
from vicinal.mpi.program import check_visible
from vicinal.mpi.started import StartedJob, Stream, run_to_end
from vicinal.mpi.traffic import JobTraffic, job_traffic
from vicinal.mpi.variables import JOB, new_job_number
from vicinal.region import RegionState, create, inspect
from vicinal.region.creation import LABEL_BYTES, default_members
from vicinal.region.heap_size import default_heap

REGION_PREFIX = "region-"
"""Prefix of the names of regions in a cluster's exchange."""

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def region_name() -> str:
    """A name for a new region in an exchange; it contains the user and the job."""
    return f"{REGION_PREFIX}{os.getuid()}-{os.getpid()}-{secrets.token_hex(4)}"


def job_label(program: Path) -> str:
    """A program's name, cut to the bytes for which a region has room, at a whole character."""
    return os.fsencode(program.name)[:LABEL_BYTES].decode(errors="ignore")


def launch(
    job: Job, cluster: JobNodes, *, timeout: float | None = None, stdin: bytes = b""
) -> CompletedJob:
    """Run a job to its end and return its output. The cluster is then free for the next job.

    Raises VicinalError if the job cannot be started, if a node ends before the job, or after
    `timeout` seconds. Nothing of the job is left then.
    """
    return run_to_end(partial(RunningJob, job, cluster), timeout=timeout, stdin=stdin)


class RunningJob(StartedJob):
    """A job from its start to its end; as a context manager it leaves nothing behind.

    If nodes of other hosts belong to the job, `regions` returns the traffic of the job with a
    number in the regions of all hosts. Raises VicinalError if the job cannot be started.
    """

    def __init__(
        self,
        job: Job,
        cluster: JobNodes,
        *,
        regions: Callable[[int], JobTraffic | None] | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> None:
        super().__init__()
        self.job = job
        self._ask_regions = regions
        self.mpi, self._library_found = job.resolved_mpi()
        self.path = MessagePath(job.path)
        self.number = new_job_number()
        """Tells the job's ranks from ranks of other jobs in the same region."""
        self._cluster = cluster
        self._made: list[Path] = []
        self._input: JobInput | None = None
        if self.path is MessagePath.REGION:
            check_job_loads_provider(self.mpi)
        self._names = [region_name() for _ in range(job.hosts)]
        directory = job.directory or Path.cwd()
        check_visible(directory)
        self._placements = self._place()
        try:
            if stdin != subprocess.DEVNULL:
                self._input = JobInput(cluster, stdin)
            known = inherited(self.mpi, found=self._library_found)
            own = self._environment() | dict(job.environment)
            self.notes = no_local_notes(own, known) + pairs_notes(self.mpi, self.path)
            program = with_preloads(job, self.mpi, job.program)
            program, variables = past_shells(known | own, program)
            command, environment = launcher(
                self.mpi,
                self._placements,
                self._program(program),
                {name: variables[name] for name in variables if name not in own},
                cluster.job_paths,
            )
            self._errors = LauncherErrors(self.mpi, stderr)
            with self._errors:
                self._launcher = subprocess.Popen(
                    cluster.head_command(command, directory),
                    env=environment | {name: variables[name] for name in own if name in variables},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=self._errors.stream,
                    start_new_session=True,  # this process forwards signals, in order
                )
        except BaseException:
            self._remove_files()
            raise

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the job's end and for its last output."""
        status = super().wait(timeout)
        self._errors.finish()
        return status

    def check_alive(self) -> None:
        """Raise VicinalError if a node ended."""
        ended = self._cluster.ended_nodes()
        if ended:
            raise VicinalError(
                f"{', '.join(ended)} ended while the job ran",
                "find out what ended the node, and run the job again",
            )

    def ranks(self) -> dict[int, psutil.Process]:
        """The process of each started rank, by rank; process ids are the host's."""
        found: dict[int, psutil.Process] = {}
        for process in self._cluster.processes():
            with suppress(psutil.Error, OSError):
                environment = process.environ()
                given = [environment[name] for name in _RANK_VARIABLES if name in environment]
                if given:
                    rank = int(given[0])
                    # A rank may have children with its variables; the rank is the oldest process.
                    known = found.get(rank)
                    if known is None or process.create_time() < known.create_time():
                        found[rank] = process
        return found

    def why_late(self) -> str:
        """A phrase about ranks that never joined the region."""
        states = self.region_states()
        if not states or self._ask_regions is not None:  # other hosts' ranks are in other regions
            return ""
        joined = {member.rank for state in states for member in state.members}
        missing = sorted(set(range(self.job.ranks)) - joined)
        if not missing:
            return ""
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        return f": rank {shown} never joined the region"

    def forward(self, number: signal.Signals) -> None:
        self._cluster.signal_command(self.launcher, number)

    def region_state(self) -> RegionState | None:
        """What the job's region says now; None for a job without a region."""
        states = self.region_states()
        return states[0] if states else None

    def region_states(self) -> list[RegionState]:
        """What each host's region says of this job now."""
        if self.path is not MessagePath.REGION:
            return []
        return [inspect(file, patience=0).of_job(self.number) for file in self._region_files]

    def traffic(self) -> JobTraffic | None:
        if self._ask_regions is not None and self.path is MessagePath.REGION:
            return self._ask_regions(self.number)
        state = self.region_state()
        return None if state is None else job_traffic(state)

    def close(self) -> None:
        """Kill all processes of the job that still run, and remove the regions that it created. Can
        be repeated.
        """
        try:
            self._cluster.end_command(self.launcher)
            self._cluster.clear()
            self._errors.finish()
        finally:
            self._remove_files()

    def _place(self) -> Sequence[Placement]:
        nodes = [node.name for node in self._cluster.nodes]
        if self.path is MessagePath.SHARED_MEMORY:
            nodes = nodes[:1]
        return place(self.job.ranks, nodes)

    def _program(self, program: list[str]) -> list[str]:
        program = with_files(self.job.files, f"{self._cluster.job_paths.own}/files", program)
        if self.job.hosts > 1:
            program = ["/bin/sh", "-c", self._choice_of_region(), *program]
        if not self.job.pin and self._input is None:
            return program
        source = self._input.path if self._input is not None else "-"
        cpus = " ".join(map(str, usable_cpus())) if self.job.pin else "-"
        # Named with its interpreter, because the exchange may be mounted noexec.
        return ["/bin/sh", self._cluster.job_paths.rank, source, cpus, *program]

    def _environment(self) -> dict[str, str]:
        region = self._region() if self.path is MessagePath.REGION else None
        variables = job_environment(self.job, self.mpi, region, self._placements)
        return variables | {JOB: str(self.number)}

    def _region(self) -> str:
        if self.job.region is None:
            return self._make_region(self._names[0])
        return self.job.region

    def _make_region(self, name: str) -> str:
        """The nodes' address of the region with this name in the exchange; the first call creates
        the region.
        """
        made = self._cluster.exchange / name
        if made not in self._made:
            self._made.append(made)
            members = self.job.members or default_members(self.job.ranks)
            section_bytes = self.job.section_bytes
            create(
                made,
                members=members,
                section_bytes=section_bytes,
                heap_bytes=self.job.heap_bytes
                if self.job.heap
                else default_heap(members, section_bytes, directory=made.parent),
                label=self.job.label or job_label(Path(self.job.program[0])),
            )
        return f"file:{self._cluster.job_paths.exchange}/{name}"

    def _choice_of_region(self) -> str:
        """A shell script that runs its arguments with the region of the host to which its node
        belongs.
        """
        nodes = [node.name for node in self._cluster.nodes]
        choices = []
        for number, name in enumerate(self._names):
            first, last = (len(nodes) * n // self.job.hosts for n in (number, number + 1))
            region = self._make_region(name)
            choices.append(f"{'|'.join(nodes[first:last])}) VICINAL_REGION={region};;")
        return (
            f'case $(uname -n) in {" ".join(choices)} esac; export VICINAL_REGION; exec "$0" "$@"'
        )

    @property
    def _region_files(self) -> list[Path]:
        """The regions' files by this process's paths, and the names of regions of brokers."""
        if self._made:
            return list(self._made)
        names = [name.partition(":") for name in (self.job.region or "").split(",")]
        return [
            Path(f"{'socket:' * (kind == 'socket')}{self._cluster.seen_from_host(path)}")
            for kind, _, path in names
            if kind in ("file", "socket")
        ]

    def _remove_files(self) -> None:
        made, self._made = self._made, []
        for file in made:
            file.unlink(missing_ok=True)
        given, self._input = self._input, None
        if given is not None:
            given.close()


class JobInput:
    """Copies a stream into a FIFO in the cluster, from construction to close()."""

    def __init__(self, cluster: JobNodes, stream: Stream) -> None:
        name = f"input-{secrets.token_hex(4)}"
        self.path = f"{cluster.job_paths.exchange}/{name}"
        """The FIFO's path in the nodes."""
        self._cluster = cluster
        self._fifo = cluster.exchange / name
        os.mkfifo(self._fifo, 0o600)
        self._copier = subprocess.Popen(
            cluster.head_command(["/bin/sh", "-c", 'exec cat > "$0"', self.path]),
            stdin=stream,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # cat ends by SIGPIPE when the program stops reading
            start_new_session=True,
        )

    def close(self) -> None:
        """Stop copying and remove the FIFO."""
        self._cluster.end_command(self._copier)
        self._fifo.unlink(missing_ok=True)
