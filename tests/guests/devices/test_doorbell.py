"""Ranks that wait in one guest, and are woken by an interrupt from the other: ivshmem-doorbell."""

import json
import statistics
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from guest_support import BOUND

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.image.layout import HOME, guest_address
from vicinal.cluster.vm.qemu.guest import Guest
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import run_in_guests
from vicinal.mpi.environment import MessagePath, Mpi, mpi_prefix, provider_directory
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import STANDARD

ROUNDS = 20
GAP_MILLISECONDS = 200
PORTS = (7001, 7011, 7021, 7031)
# In a namespace of its own a user can hide the agent: then there are no interrupts.
HIDE_AGENT = 'mount -t tmpfs none /run/vicinal && exec "$@"'
WITHOUT_AGENT = ("unshare", "-U", "-r", "-m", "sh", "-c", HIDE_AGENT, "-")
# Prints the highest number of interrupts of the device until the file in $0 exists. The kernel no
# longer lists the interrupts of ended processes.
COUNT = """
most=0
until [ -e "$0" ]; do
    now=$(awk '/vfio-msix/ { n += $2 } END { print n + 0 }' /proc/interrupts)
    [ "$now" -gt "$most" ] && most=$now
    sleep 0.1
done
echo $most
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[GuestPair]:
    with GuestPair(region_device=RegionDevice.DOORBELL, say=print) as running:
        print(running.choice)
        assert running._doorbell is not None
        server = running._doorbell.process
        assert psutil.pid_exists(server)
        yield running
    assert not psutil.pid_exists(server)


@pytest.fixture(scope="module")
def program(pair: GuestPair, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Runs sleeper.c in both guests, with the image's libfabric."""
    target = tmp_path_factory.mktemp("sleeper") / "sleeper"
    source = Path(__file__).parents[1] / "support/sleeper.c"
    directory = mpi_prefix(Mpi.MPICH) / "lib/mpich"
    command: list[str | Path] = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    command += ["-o", target, source, directory / "libfabric.so.1", f"-Wl,-rpath,{directory}"]
    subprocess.run(command, check=True, timeout=120)
    for guest in pair.guests:
        guest.copy_in(target, f"{HOME}/sleeper")
    return f"{HOME}/sleeper"


@dataclass
class Slept:
    """Measurements of two processes that block in fi_cq_sread()."""

    round_trips: list[float]
    """Microseconds from a message to the answer."""
    processor: float
    """Processor time of the sleeper in seconds per second."""
    switches: float
    """How often per second all its threads together gave up the processor."""
    interrupts: int

    def __str__(self) -> str:
        return (
            f"round trip {statistics.median(self.round_trips):.0f} us "
            f"({min(self.round_trips):.0f} to {max(self.round_trips):.0f}), processor "
            f"{self.processor:.1%}, {self.switches:.0f} switches/s, {self.interrupts} interrupts"
        )


def sleep_and_wake(pair: GuestPair, program: str, port: int, *before: str) -> Slept:
    environment = {"FI_PROVIDER_PATH": str(provider_directory()), "FI_PROVIDER": "vicinal"}
    waker, sleeper = pair.guests
    sleep = [*before, program, "sleep", str(port), str(ROUNDS)]
    rounds = (str(port), str(ROUNDS), str(GAP_MILLISECONDS))
    wake = [*before, program, "wake", guest_address(1), *rounds]
    with ThreadPoolExecutor() as pool:
        slept = pool.submit(sleeper.run, sleep, environment=environment, timeout=BOUND)
        woke = waker.run(wake, environment=environment, timeout=BOUND)
        done = slept.result()
    for each in (woke, done):
        assert each.returncode == 0, each.stderr
        assert each.stderr == ""
    told = json.loads(done.stdout)
    return Slept(
        round_trips=json.loads(woke.stdout)["microseconds"],
        processor=told["processor_seconds"] / told["seconds"],
        switches=told["switches"] / told["seconds"],
        interrupts=told["interrupts"],
    )


def vectors_in_use(guest: Guest) -> str:
    return guest.run(["sh", "-c", "grep vfio-msix /proc/interrupts; true"]).stdout


def test_one_that_blocks_is_woken_by_the_interrupt(pair: GuestPair, program: str) -> None:
    for port in PORTS:
        woken = sleep_and_wake(pair, program, port)
        sleeps = sleep_and_wake(pair, program, port + 1, *WITHOUT_AGENT)
        for name, each in (("interrupts", woken), ("sleeps", sleeps)):
            print(f"{pair.choice.accelerator.description}: {name}: {each}")
        # A message may also find it awake, because it polls 20 times a second.
        assert woken.interrupts > ROUNDS / 2
        assert sleeps.interrupts == 0
        # It checks its peers at this rate, and updates its own sign of life 10 times a second.
        assert woken.switches < 80
        # A busy host disturbs the sleep of both, so one pair of all must show the difference.
        if woken.switches < sleeps.switches / 2 and woken.processor < sleeps.processor:
            break
    else:
        pytest.fail("short sleeps cost no more than waiting for interrupts")


def test_interrupts_are_given_back(pair: GuestPair, program: str) -> None:
    """Interrupts of ended and killed processes are free again; there are 32 in all."""
    environment = {"FI_PROVIDER_PATH": str(provider_directory()), "FI_PROVIDER": "vicinal"}
    script = f"""
        for i in $(seq 40); do
            {program} sleep 7003 1 2>&1 & sleeper=$!
            until grep -q vfio-msix /proc/interrupts; do sleep 0.02; done
            kill -9 $sleeper
            wait $sleeper 2>/dev/null
            while grep -q vfio-msix /proc/interrupts; do sleep 0.02; done
        done
    """
    guest = pair.guests[1]
    done = guest.run(["sh", "-c", script], environment=environment, timeout=BOUND)
    assert done.returncode == 0
    assert "no interrupt left" not in done.stdout
    assert vectors_in_use(guest) == ""


@pytest.mark.parametrize("mpi", STANDARD)
def test_jobs_that_block_are_right_and_are_interrupted(pair: GuestPair, mpi: Mpi) -> None:
    what = ["--only", "collectives", "--max-size", "64", "--rounds", "1"]
    job = Job(
        program=[str(mpi_program(mpi, "verify")), *what],
        ranks=4,
        mpi=mpi,
        path=MessagePath.REGION,
        environment={"VICINAL_PROGRESS": "block"},
    )
    counted = [0, 0]
    runs = 0
    # On faster guests ranks sleep more rarely: once it was twice in a job of 3.5 s.
    while runs == 0 or (min(counted) <= 10 and runs < 6):
        runs += 1
        interrupts = count_interrupts(pair, job, f"{HOME}/done-{mpi}-{runs}")
        print(f"{mpi}: {interrupts} interrupts")
        counted = [sum(both) for both in zip(counted, interrupts, strict=True)]
    assert min(counted) > 10


def count_interrupts(pair: GuestPair, job: Job, mark: str) -> list[int]:
    """The interrupts of each guest while a job runs, which must be correct."""
    with ThreadPoolExecutor() as pool:
        counts = [
            pool.submit(guest.run, ["sh", "-c", COUNT, mark], timeout=BOUND)
            for guest in pair.guests
        ]
        try:
            done = run_in_guests(job, pair, timeout=BOUND)
        finally:
            for guest in pair.guests:
                guest.run(["touch", mark])
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    (record,) = read_records(done.stdout)
    assert record["errors"] == 0, record["first_error"]
    assert record["messages"] > 0
    return [int(count.result().stdout) for count in counts]


def test_guests_without_a_region_in_common_have_no_doorbell() -> None:
    with pytest.raises(VicinalError, match="share no region"):
        GuestPair(region_device=RegionDevice.DOORBELL, network=GuestNetwork.VERBS).open()
