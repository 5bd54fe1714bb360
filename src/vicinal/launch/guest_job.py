"""Runs MPI jobs across guests, by the launchers of the MPI libraries.

The launcher runs in the first guest and starts the ranks of other guests over ssh, as between any
VMs. No variable names the region: the provider finds it. Guests with SR-IOV cards are hosts,
and peers outside a guest's own region are reached by RDMA.
"""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.job_nodes import ClusterGuests, JobGuests
from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.nodes.vm.parallel import run_parallel
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.image.layout import HOME
from vicinal.mpi.environment import (
    NO_LOCAL,
    MessagePath,
    mpi_environment,
    no_local_notes,
    provider_directory,
)
from vicinal.mpi.job import CompletedJob, Job, with_files
from vicinal.mpi.libraries import STANDARD, Family, Installation, Mpi
from vicinal.mpi.placement import Placement, place
from vicinal.mpi.preloading import pairs_notes, preloaded_libraries, preloading
from vicinal.mpi.program import linked_mpi
from vicinal.mpi.started import StartedJob, Stream
from vicinal.mpi.traffic import JobTraffic
from vicinal.mpi.variables import JOB, new_job_number, portable_variables
from vicinal.region import RegionState

VERBS_CORE = "verbs;ofi_rxm"
"""libfabric's name of the core provider that reaches the other guest over a virtual function."""

_MOST_PEERS = "64"
"""ofi_rxm creates a completion queue for this many peers at once. For 256, its default, the queue
would have 65,536 entries, and Soft-RoCE has no queue of more than 32,767."""

_OWN_PREFIXES = ("OMPI_", "PRTE_", "PMIX_")
"""Prefixes of variables that Open MPI's launcher forwards by itself."""

CLEAR = """
for process in /proc/[0-9]*; do
    grep -q "$1" "$process/environ" 2>/dev/null && kill -9 "${process#/proc/}" 2>/dev/null
done
"""
"""Shell that kills all processes whose environment contains its first argument, VARIABLE=VALUE.

A process of another user has an environment that this user may not read, and is not of this job.
"""
_MARK = "VICINAL_VM_JOB"
"""Variable that all processes of one job have."""

# exec keeps the shell's process number, so the file names the launcher's process.
_LAUNCH = 'echo $$ >"$0" && exec "$@"'
_SIGNAL = 'kill -s "$1" "$(cat "$0")"'
_CLEAR = f'{CLEAR}rm -f "$0"'


class RunningGuestJob(StartedJob):
    """A job in a cluster's VMs; as a context manager it leaves nothing behind.

    Raises VicinalError if the job cannot be started.
    """

    grace_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        job: Job,
        guests: ClusterGuests,
        *,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> None:
        super().__init__()
        self.path = MessagePath(job.path)
        self._guests = guests
        self._number = new_job_number()
        self._mark = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._file = f"/tmp/vicinal-job-{self._mark}"
        guests.enter()
        command, environment = job_command(job, guests, self._number)
        # Guests have the library for pairs if this host has it.
        of_pairs = pairs_notes(check_guest_job(job), self.path)
        self.notes = no_local_notes(environment, os.environ) + of_pairs
        environment = {**environment, _MARK: self._mark}
        self._launcher = subprocess.Popen(
            guests.guests[0].command(["sh", "-c", _LAUNCH, self._file, *command], environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # this process forwards signals, in order
        )

    def check_alive(self) -> None:
        """Raise VicinalError if a VM ended."""
        self._guests.check()

    def traffic(self) -> JobTraffic | None:
        """The messages in the VMs' regions now; None if the job does not use regions."""
        return self._guests.traffic(self._number) if self.path is MessagePath.REGION else None

    def forward(self, number: signal.Signals) -> None:
        with suppress(VicinalError):
            name = number.name.removeprefix("SIG")
            self._guests.guests[0].run(["sh", "-c", _SIGNAL, self._file, name])

    def close(self) -> None:
        """Kill all processes of the job that still run, in all VMs. Can be repeated."""
        if self.launcher.poll() is None:
            self.launcher.terminate()
        clear = ["sh", "-c", _CLEAR, self._file, f"{_MARK}={self._mark}"]
        with suppress(VicinalError):  # nothing runs in a VM that ended
            run_parallel(partial(guest.run, clear) for guest in self._guests.guests)
        self.launcher.wait()


def run_in_guests(job: Job, pair: JobGuests, *, timeout: float = 120.0) -> CompletedJob:
    """Run a job to its end and return its output.

    Raises VicinalError if the job cannot be started, if the first guest is lost, or after `timeout`
    seconds. The job has ended then.
    """
    number = new_job_number()
    command, environment = job_command(job, pair, number)
    began = time.monotonic()
    done = pair.guests[0].run(command, environment=environment, timeout=timeout)
    seconds = time.monotonic() - began
    regions: tuple[RegionState, ...] = ()
    if MessagePath(job.path) is MessagePath.REGION:
        regions = tuple(each.of_job(number) for each in pair.inspect_all())
    first = regions[0] if regions else None
    return CompletedJob(done.returncode, done.stdout, done.stderr, seconds, first, regions)


def show_in_guests(job: Job, pair: GuestPair) -> int:
    """Run a job with this process's input and output. Returns the job's exit status."""
    command, environment = job_command(job, pair)
    guest = pair.guests[0]
    status = subprocess.run(guest.command(command, environment), check=False).returncode
    if not all(each.alive for each in pair.guests):
        lost = next(each for each in pair.guests if not each.alive)
        raise lost.failure("it ended while the job ran")
    return status if status >= 0 else 128 - status  # ssh was killed


def check_guest_job(job: Job) -> Installation:
    """Check a job for guests and return its MPI library. Needs no guests, so call it before they
    boot.

    Raises VicinalError if guests cannot run the job, or if a file that it needs is missing.
    """
    path = MessagePath(job.path)
    if path is MessagePath.SHARED_MEMORY:
        raise VicinalError(
            "the path shared-memory does not connect guests",
            "use the path region or network",
        )
    if isinstance(job.mpi, str):
        check_guests_have(Mpi(job.mpi))  # also if it is not installed on this host
    mpi, _ = job.resolved_mpi()
    check_guests_have(mpi)
    if path is MessagePath.REGION:
        provider_directory()
    return mpi


def check_guests_have(mpi: Mpi | Installation) -> None:
    """Raise VicinalError for an MPI library that is not in the guests' image."""
    name = mpi.value if isinstance(mpi, Mpi) else mpi.name
    if name not in STANDARD:
        raise VicinalError(
            f"the guests do not have {mpi.full_name}", f"choose --mpi {' or '.join(STANDARD)}"
        )


def job_command(
    job: Job, pair: JobGuests, number: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """The launcher's command line and environment, for the first guest.

    `number` tells the job's ranks from ranks of other jobs in their region (JOB). A program that is
    not in the image is copied into all guests. Raises VicinalError as check_guest_job() does.
    """
    mpi = check_guest_job(job)
    linked = linked_mpi(Path(job.program[0]))
    found = linked is None or (linked[1] is not None and pair.image.has(linked[1]))
    program = [placed(Path(job.program[0]), pair), *job.program[1:]]
    # The libraries are beside the provider; guests have that folder under this host's path.
    libraries = preloaded_libraries(mpi, MessagePath(job.path), heap=job.heap)
    if libraries:
        program = ["/usr/bin/env", f"LD_PRELOAD={preloading(libraries, job.environment)}", *program]
    program = with_files(job.files, f"{HOME}/files", program)
    beyond = _beyond(mpi, job, pair)
    environment = {
        **mpi_environment(mpi, job.path, job.region, core=beyond.get("VICINAL_NET")),
        **beyond,
        **({} if found else {"LD_LIBRARY_PATH": str(mpi.library.parent)}),
        **portable_variables(os.environ),
        **({} if number is None else {JOB: str(number)}),
        **job.environment,
    }
    placements = place(job.ranks, [guest.name for guest in pair.guests])
    launcher = _launcher(mpi, placements, environment)
    return [*launcher, *program], environment


def _beyond(mpi: Installation, job: Job, pair: JobGuests) -> dict[str, str]:
    """Variables for ranks that share a guest, or that are not all in one region."""
    if MessagePath(job.path) is not MessagePath.REGION:
        return {}
    variables = {}
    if mpi.family is Family.MPICH and job.ranks > len(pair.guests):
        # Otherwise MPICH uses its own shared memory between ranks in one guest.
        variables[NO_LOCAL] = os.environ.get(NO_LOCAL, "1")
    if pair.network is GuestNetwork.VERBS:
        variables |= {"VICINAL_NET": VERBS_CORE, "FI_UNIVERSE_SIZE": _MOST_PEERS}
    return variables


def placed(program: Path, pair: JobGuests) -> str:
    """The path of this host's program in the guests. Copies the program there if necessary."""
    if pair.image.has(program):
        return str(program)
    target = f"{HOME}/{program.name}"
    for guest in pair.guests:
        guest.copy_in(program, target)
    return target


def _launcher(
    mpi: Installation, placements: Sequence[Placement], environment: Mapping[str, str]
) -> list[str]:
    hosts = ",".join(f"{placement.node}:{placement.ranks}" for placement in placements)
    ranks = str(sum(placement.ranks for placement in placements))
    if mpi.family is Family.MPICH:
        launcher = [str(mpi.launcher), "-launcher", "ssh"]
        return [*launcher, "-hosts", hosts, "-n", ranks]
    launcher = [str(mpi.launcher), "--host", hosts, "-n", ranks]
    # A guest has one processor, so ranks that share the guest cannot be bound to one each.
    launcher += ["--map-by", "slot", "--bind-to", "none"]
    for name in environment:
        if not name.startswith(_OWN_PREFIXES):
            launcher += ["-x", name]
    return launcher
