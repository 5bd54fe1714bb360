"""VICINAL_PROGRESS and `vicinal run --progress`: what waiting ranks do."""

import os
import sys
from pathlib import Path

import pytest
from command_support import Vicinal
from launch_support import GUARD_SECONDS, MPIS, REGION, square

ASLEEP = 25
"""A rank that polls is never seen asleep. A blocked rank is nearly always seen asleep."""
SPUN_SECONDS = 2.0
"""Processor time that a rank uses only if it polls. A rank polls for a millisecond before it
sleeps, and on a busy machine that millisecond may take long.
"""
LOOKING_SECONDS = 20.0

BLOCKED = rf"""
import os, sys, threading, time
from pathlib import Path
from mpi4py import MPI
world = MPI.COMM_WORLD
buffer = bytearray(8)

def look():
    stat = Path(f"/proc/self/task/{{os.getpid()}}/stat").read_text().rpartition(") ")[2].split()
    return stat[0] == "S", (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

def until(condition, seconds={GUARD_SECONDS}):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)

world.barrier()
for number, wait in enumerate((world.Probe, lambda source: world.Recv(buffer, source=source))):
    slept = Path(sys.argv[1], f"slept{{number}}")
    if world.rank == 0:
        seen, (_, before), used = [], look(), []

        def is_clear():
            asleep, now = look()
            seen.append(asleep)
            used.append(now - before)
            return sum(seen) >= {ASLEEP} or used[-1] >= {SPUN_SECONDS}

        def watch():
            until(is_clear, {LOOKING_SECONDS})
            slept.touch()

        watcher = threading.Thread(target=watch)
        watcher.start()
        wait(source=1)
        watcher.join()
        sys.stdout.write(f"{{used[-1]}}\n")
        world.Recv(buffer, source=1)
    else:
        until(slept.exists)
        for _ in range(1 + number):
            world.Send(buffer, dest=0)
world.barrier()
"""

CROWD = """
import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = 0
for i in range(200):
    total += world.allreduce(i * world.rank)
world.barrier()
sys.stdout.write(f"{total}\\n")
"""

YIELD = "OMPI_MCA_mpi_yield_when_idle"
SETTING = f"""
import os, sys
sys.stdout.write(f"{{os.environ.get('VICINAL_PROGRESS')}} {{os.environ.get('{YIELD}')}}\\n")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "ranks.py"


@pytest.mark.parametrize("mpi", MPIS)
def test_a_blocked_rank_sleeps(vicinal: Vicinal, script: Path, mpi: str) -> None:
    """In MPI_Probe, which peeks, and in MPI_Recv. The message is sent once the rank is asleep."""
    script.write_text(BLOCKED)
    run = ("run", "-n", 2, "--mpi", mpi, "--progress", "block", sys.executable)
    result = vicinal(*run, script, script.parent)
    assert result.returncode == 0, result.stderr
    probe, receive = map(float, result.stdout.split())
    assert probe < SPUN_SECONDS
    assert receive < SPUN_SECONDS


@pytest.mark.parametrize(
    ("mpi", "mode"),
    square(MPIS, ["adaptive", "block"], [("mpich", "adaptive"), ("openmpi", "block")]),
)
def test_more_ranks_than_cores_get_to_the_end(
    vicinal: Vicinal, script: Path, mpi: str, mode: str
) -> None:
    ranks = len(os.sched_getaffinity(0)) + 2
    script.write_text(CROWD)
    result = vicinal("run", "-n", ranks, "--mpi", mpi, "--progress", mode, sys.executable, script)
    assert result.returncode == 0, result.stderr
    total = sum(range(200)) * sum(range(ranks))
    assert result.stdout.splitlines() == [str(total)] * ranks


def test_the_choice_reaches_the_ranks(vicinal: Vicinal, script: Path) -> None:
    script.write_text(SETTING)
    run = ("run", "--mpi", "openmpi", "-n", 1, "--progress", "block")
    result = vicinal(*run, sys.executable, script)
    assert result.stdout == "block None\n"


@pytest.mark.parametrize(
    ("path", "before", "told"),
    [
        ("network", {}, "1"),
        ("network", {YIELD: "0"}, "0"),
        pytest.param(*REGION.values, {}, None, marks=REGION.marks),
    ],
)
def test_open_mpi_is_told_that_cores_are_shared_where_we_do_not_see_it(
    vicinal: Vicinal, script: Path, path: str, before: dict[str, str], told: str | None
) -> None:
    """On several nodes, Open MPI cannot know it. A waiting rank would then keep the core."""
    script.write_text(SETTING)
    ranks = len(os.sched_getaffinity(0)) + 1
    run = ("run", "--mpi", "openmpi", "-n", ranks, "--path", path)
    result = vicinal(*run, sys.executable, script, **before)
    assert result.stdout == f"None {told}\n" * ranks


def test_wrong_options_are_refused(vicinal: Vicinal) -> None:
    result = vicinal("run", "-n", 1, "--path", "network", "--progress", "block", "true")
    assert result.returncode != 0
    assert "leave out --progress, or use --path region" in result.stderr
    result = vicinal("run", "-n", 1, "--progress", "fast", "true")
    assert result.returncode == 2
    assert "must be poll, adaptive or block" in result.stderr
