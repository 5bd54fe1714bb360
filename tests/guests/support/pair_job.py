"""`vicinal run` on guests that a test started, which waits for the test at two gates.

    python pair_job.py DIRECTORY REGION GATE NAME,NAME ARGUMENT...

ARGUMENT... is what follows `vicinal run`; it names the cluster `pair`. Only the look-up of that
cluster is replaced. GATE is a descriptor. The command waits for a byte there, or for its end,
before it has reached the guests, and after it has forwarded a signal to the job. So the test
decides how long both take, on a machine of any speed.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from guest_verify import Pair

from vicinal import cli
from vicinal.base.errors import VicinalError
from vicinal.cluster import manager
from vicinal.cluster.nodes.job_nodes import Launchers
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.image.building import find_image
from vicinal.launch import cluster_job
from vicinal.launch.guest_job import RunningGuestJob
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob


def _failure(what: str) -> VicinalError:
    return VicinalError(f"a guest of the test: {what}", "run the test again")


class JobPair(Pair):
    """The guests of a cluster, which can be entered when the gate opens."""

    def __init__(self, directory: Path, region: Path, gate: int, names: Sequence[str]) -> None:
        keys = Keys(directory)
        shells = [
            GuestShell(name, directory, keys, alive=lambda _lost: True, failure=_failure)
            for name in names
        ]
        super().__init__(shells, find_image(), region)
        self._gate = gate

    def enter(self) -> None:
        os.read(self._gate, 1)


class Nodes:
    """The part of a cluster that a job needs."""

    def __init__(self, guests: JobPair) -> None:
        self._guests = guests

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        return launchers.in_first_guest(job, self._guests)

    def close(self) -> None:
        """Nothing was opened."""


def main(directory: str, region: str, gate: str, names: str, *arguments: str) -> int:
    guests = JobPair(Path(directory), Path(region), int(gate), names.split(","))
    forward = RunningGuestJob.forward

    def forward_and_wait(job: RunningGuestJob, number: signal.Signals) -> None:
        forward(job, number)
        os.read(int(gate), 1)

    with (
        mock.patch.object(manager, "find_name", str),
        mock.patch.object(cluster_job, "open_nodes", return_value=Nodes(guests)),
        mock.patch.object(RunningGuestJob, "forward", forward_and_wait),
    ):
        return cli.run(["run", *arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
