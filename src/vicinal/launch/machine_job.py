"""A job in a cluster's virtual machines: from its start to its end, and how it is ended."""

import os
import secrets
import signal
import subprocess
from contextlib import suppress
from functools import partial
from typing import ClassVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.job_nodes import ClusterGuests
from vicinal.cluster.nodes.vm.together import together
from vicinal.launch.guest_job import check_guest_job, job_command
from vicinal.mpi.environment import MessagePath, no_local_notes
from vicinal.mpi.job import Job
from vicinal.mpi.preloading import pairs_notes
from vicinal.mpi.started import StartedJob, Stream
from vicinal.mpi.traffic import JobTraffic
from vicinal.mpi.variables import new_job_number

CLEAR = """
for process in /proc/[0-9]*; do
    grep -q "$1" "$process/environ" 2>/dev/null && kill -9 "${process#/proc/}" 2>/dev/null
done
"""
"""Shell that kills all that have its first argument, VARIABLE=VALUE, among their variables.

A process of another user has variables that we may not read, and is not ours.
"""
_MARK = "VICINAL_MACHINE_JOB"
"""Variable of all that belongs to one job."""

# The launcher has the shell's process number, by which it is found again.
_LAUNCH = 'echo $$ >"$0" && exec "$@"'
_SIGNAL = 'kill -s "$1" "$(cat "$0")"'
_CLEAR = f'{CLEAR}rm -f "$0"'


class RunningGuestJob(StartedJob):
    """A job that runs; as a context manager it leaves nothing of it behind.

    Raises VicinalError where it cannot be started.
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
        # Guests have the library for pairs where this host has it.
        of_pairs = pairs_notes(check_guest_job(job), self.path)
        self.notes = no_local_notes(environment, os.environ) + of_pairs
        environment = {**environment, _MARK: self._mark}
        self._launcher = subprocess.Popen(
            guests.guests[0].command(["sh", "-c", _LAUNCH, self._file, *command], environment),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # signals go through us, in order
        )

    def look(self) -> None:
        """Raise VicinalError where a machine ended."""
        self._guests.check()

    def traffic(self) -> JobTraffic | None:
        """What the machines' regions say now; None where the job does not use them."""
        return self._guests.traffic(self._number) if self.path is MessagePath.REGION else None

    def forward(self, number: signal.Signals) -> None:
        """Hand a signal to the launcher, which hands it to the ranks or ends them."""
        with suppress(VicinalError):
            name = number.name.removeprefix("SIG")
            self._guests.guests[0].run(["sh", "-c", _SIGNAL, self._file, name])

    def close(self) -> None:
        """Kill what still runs of it, in all machines. Can be repeated."""
        if self.launcher.poll() is None:
            self.launcher.terminate()
        clear = ["sh", "-c", _CLEAR, self._file, f"{_MARK}={self._mark}"]
        with suppress(VicinalError):  # nothing runs in a machine that is gone
            together(partial(guest.run, clear) for guest in self._guests.guests)
        self.launcher.wait()
