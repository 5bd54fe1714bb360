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
from vicinal.cluster.nodes.job_nodes import JobGuests, check_joined
from vicinal.cluster.nodes.vm.parallel import run_parallel
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.image.layout import HOME
from vicinal.mpi.environment import (
    NO_LOCAL,
    MessagePath,
    Progress,
    mpi_environment,
    no_local_notes,
    provider_directory,
)
from vicinal.mpi.job import CompletedJob, Job, with_files
from vicinal.mpi.libraries import STANDARD, Family, Installation, Mpi
from vicinal.mpi.placement import Placement, place
from vicinal.mpi.preloading import pairs_notes, preloaded_libraries, preloading
from vicinal.mpi.program import linked_mpi
from vicinal.mpi.started import StartedJob, Stream, run_to_end
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
for each in $(grep -ls "$1" /proc/[0-9]*/environ); do
    each=${each%/environ}
    kill -9 "${each#/proc/}" 2>/dev/null
done
"""
"""Shell that kills all processes whose environment contains its first argument, VARIABLE=VALUE.

A process of another user has an environment that this user may not read, and is not of this job.
"""
_LOST_SECONDS = 2.0
"""Time in which a guest ends after the connection to it was lost."""
_POLL_SECONDS = 0.1

_MARK = "VICINAL_VM_JOB"
"""Variable that all processes of one job have."""

# exec keeps the shell's process number, so the file names the launcher's process.
_LAUNCH = 'echo $$ >"$0" && exec "$@"'
_SIGNAL = 'kill -s "$1" "$(cat "$0")"'
_CLEAR = f'{CLEAR}rm -f "$0"'


class RunningGuestJob(StartedJob):
    """A job in guests; as a context manager it leaves nothing behind.

    Raises VicinalError if the guests cannot run the job, or if it cannot be started.
    """

    grace_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        job: Job,
        guests: JobGuests,
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
        mpi = check_guest_job(job)
        placements = place(job.ranks, [guest.name for guest in guests.guests])
        check_joined([placement.node for placement in placements], guests.alone)
        if self.path is MessagePath.REGION:
            guests.check_room(job.ranks, heap=job.heap)
        guests.enter()
        command, environment = job_command(job, guests, self._number)
        # Guests have the library for pairs if this host has it.
        of_pairs = pairs_notes(mpi, self.path)
        self.notes = no_local_notes(environment, os.environ) + of_pairs
        environment = {**environment, _MARK: self._mark}
        self.started = time.monotonic()  # the program may have been copied into the guests
        self._launcher = subprocess.Popen(
            guests.guests[0].command(["sh", "-c", _LAUNCH, self._file, *command], environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # this process forwards signals, in order
        )

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the job's end. Raises VicinalError also if a guest's end ended the job."""
        status = super().wait(timeout)
        if status != 0:
            # QEMU closes the connection to the first guest a moment before it ends.
            lost = self._guests.guests[0].is_lost(status)
            until = time.monotonic() + (_LOST_SECONDS if lost else 0.0)
            self.check_alive()
            while time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
                self.check_alive()
        return status

    def check_alive(self) -> None:
        """Raise VicinalError if a guest ended."""
        self._guests.check()

    def region_states(self) -> list[RegionState]:
        if self.path is not MessagePath.REGION:
            return []
        return [each.of_job(self._number) for each in self._guests.inspect_all()]

    def traffic(self) -> JobTraffic | None:
        """The messages in the guests' regions now; None if the job does not use regions."""
        return self._guests.traffic(self._number) if self.path is MessagePath.REGION else None

    def forward(self, number: signal.Signals) -> None:
        with suppress(VicinalError):
            name = number.name.removeprefix("SIG")
            self._guests.guests[0].run(["sh", "-c", _SIGNAL, self._file, name])

    def close(self) -> None:
        """Kill all processes of the job that still run, in all guests. Can be repeated."""
        if self.launcher.poll() is None:
            self.launcher.terminate()
        clear = ["sh", "-c", _CLEAR, self._file, f"{_MARK}={self._mark}"]
        with suppress(VicinalError):  # nothing runs in a guest that ended
            run_parallel(partial(guest.run, clear) for guest in self._guests.guests)
        self.launcher.wait()


def run_in_guests(job: Job, guests: JobGuests, *, timeout: float = 120.0) -> CompletedJob:
    """Run a job to its end and return its output; see run_to_end()."""
    return run_to_end(partial(RunningGuestJob, job, guests), timeout=timeout)


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
    job: Job, guests: JobGuests, number: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """The launcher's command line and environment, for the first guest.

    `number` tells the job's ranks from ranks of other jobs in their region (JOB). A program that is
    not in the image is copied into all guests. Raises VicinalError as check_guest_job() does.
    """
    mpi = check_guest_job(job)
    linked = linked_mpi(Path(job.program[0]))
    found = linked is None or (linked[1] is not None and guests.image.has(linked[1]))
    program = [placed(Path(job.program[0]), guests), *job.program[1:]]
    # The libraries are beside the provider; guests have that folder under this host's path.
    variables = {**portable_variables(os.environ), **job.environment}
    libraries = preloaded_libraries(mpi, MessagePath(job.path), variables, heap=job.heap)
    if libraries:
        program = ["/usr/bin/env", f"LD_PRELOAD={preloading(libraries, job.environment)}", *program]
    program = with_files(job.files, f"{HOME}/files", program)
    beyond = _beyond(mpi, job, guests)
    environment = {
        **mpi_environment(mpi, job.path, job.region, core=beyond.get("VICINAL_NET")),
        **beyond,
        **({} if found else {"LD_LIBRARY_PATH": str(mpi.library.parent)}),
        **portable_variables(os.environ),
        **({} if number is None else {JOB: str(number)}),
        **job.environment,
        **({} if job.progress is None else {"VICINAL_PROGRESS": Progress(job.progress).value}),
    }
    placements = place(job.ranks, [guest.name for guest in guests.guests])
    launcher = _launcher(mpi, placements, environment)
    return [*launcher, *program], environment


def _beyond(mpi: Installation, job: Job, guests: JobGuests) -> dict[str, str]:
    """Variables for ranks that share a guest, or that are not all in one region."""
    if MessagePath(job.path) is not MessagePath.REGION:
        return {}
    variables = {}
    if mpi.family is Family.MPICH and job.ranks > len(guests.guests):
        # Otherwise MPICH uses its own shared memory between ranks in one guest.
        variables[NO_LOCAL] = os.environ.get(NO_LOCAL, "1")
    if guests.network is GuestNetwork.VERBS:
        variables |= {"VICINAL_NET": VERBS_CORE, "FI_UNIVERSE_SIZE": _MOST_PEERS}
    return variables


def placed(program: Path, guests: JobGuests) -> str:
    """The path of this host's program in the guests. Copies the program there if necessary."""
    if guests.image.has(program):
        return str(program)
    target = f"{HOME}/{program.name}"
    for guest in guests.guests:
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
