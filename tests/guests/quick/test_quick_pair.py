"""Two guests and MPI jobs between them: the part of guests in the common check.

They start from a snapshot, as VMs of Slurm's jobs do. The first run on a host makes it. All
other tests of guests are in the other folders, which are long suites.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from checks.leftovers import new_shared_path
from guest_support import BOUND, wait_until
from guest_verify import BOTH_WAYS, Pair, verify
from launch_support import package_path

from vicinal.base import signals, waiting
from vicinal.cluster.vm.image.building import find_image
from vicinal.cluster.vm.snapshot.starting import GuestMake, start_guests
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region import create

NAMES = ("guest0", "guest1")
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    # Not the test's own directory, because the paths of sockets must be short.
    path = new_shared_path()
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def quick_pair(directory: Path) -> Iterator[Pair]:
    region = directory / "region"
    create(region, members=8, for_guests=True)
    guests = start_guests([GuestMake(each) for each in NAMES], directory, region, say=print)
    try:
        yield Pair([guest.shell for guest in guests], find_image(), region)
    finally:
        for guest in guests:
            guest.stop()


def test_every_byte_of_a_job_goes_through_the_region_of_two_guests(quick_pair: Pair) -> None:
    shells = quick_pair.guests
    assert [shell.run(["hostname"]).stdout.strip() for shell in shells] == [*NAMES]
    assert verify(quick_pair, str(mpi_program(Mpi.MPICH, "verify"))) == BOTH_WAYS


class GatedJob:
    """A `vicinal run` on the guests by pair_job.py, which waits for open_gate()."""

    def __init__(self, process: subprocess.Popen[str], gate: int) -> None:
        assert process.stderr is not None
        self.process = process
        self._errors: IO[str] = process.stderr
        self._gate = gate

    def open_gate(self) -> None:
        os.write(self._gate, b"x")

    def wait_until_said(self, text: str) -> None:
        """Read standard error up to this line. The launcher writes lines of its own."""
        lines = []
        for line in self._errors:
            if line == f"{text}\n":
                return
            lines.append(line)
        raise AssertionError(f"{text!r} was not said: {lines}")


@contextmanager
def gated_job(directory: Path, *arguments: str) -> Iterator[GatedJob]:
    read, write = os.pipe()
    pair = (str(directory), str(directory / "region"), str(read), ",".join(NAMES))
    with subprocess.Popen(
        [sys.executable, str(SUPPORT / "pair_job.py"), *pair, "--cluster", "pair", *arguments],
        env={**os.environ, "PYTHONPATH": package_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[read],
        start_new_session=True,
    ) as process:
        guard = threading.Timer(BOUND, process.kill)
        guard.start()
        try:
            yield GatedJob(process, write)
        finally:
            guard.cancel()
            process.kill()
            os.close(read)
            os.close(write)


def test_an_interrupted_job_says_what_it_does_and_leaves_no_rank(
    directory: Path, quick_pair: Pair
) -> None:
    """The command waits at each gate until the test has seen the line about this wait."""
    # The gates show that a line comes during the wait, and not how soon.
    assert waiting.SECONDS < 1.0
    assert signals.SILENT_SECONDS < 1.0
    program = str(mpi_program(Mpi.MPICH, "latency"))
    job = ("-n", "2", "--mpi", "mpich", program, "--sizes", "8", "--seconds", "3600")

    def guests_with_ranks() -> list[str]:
        return [each.name for each in quick_pair.guests if program in each.run(["ps"]).stdout]

    with gated_job(directory, *job) as running:
        running.wait_until_said("vicinal: reaching the nodes of pair ...")
        running.open_gate()
        running.wait_until_said("vicinal: note: the job was started")
        wait_until("each guest has a rank", lambda: guests_with_ranks() == [*NAMES])
        running.process.send_signal(signal.SIGINT)
        running.wait_until_said("vicinal: SIGINT: ending what was started ...")
        running.open_gate()
        assert running.process.wait(BOUND) == 128 + signal.SIGINT
    assert guests_with_ranks() == []
    left = quick_pair.guests[0].run(["sh", "-c", "ls /tmp/vicinal-job-*"])
    assert left.stdout == ""
