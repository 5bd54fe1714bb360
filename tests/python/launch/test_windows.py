"""One-sided operations between isolated nodes, on windows whose memory lies in the region.

The program of tests/windows checks each result itself. A failure prints seed and step.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from collectives_support import check_good, run_ranks
from command_support import CHECKOUT
from launch_support import MPIS, compile_for_each_mpi, square

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.mpi.job import CompletedJob

SOURCES = CHECKOUT / "tests/windows"
NODES = 4

STEPS = {"mpich": "steps", "openmpi": "sound"}
"""Open MPI 5.0.11 itself computes some accumulates wrong that are passed on to it."""
CONCURRENT = (
    *(("sums", 300), ("threads", 60, 3), ("locks", 100), ("order", 30), ("large", 3)),
    ("churn", 120),
)
COMMON_JOBS = (("mpich", 2), ("openmpi", 3))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    first, *more = sorted(SOURCES.glob("*.c"))
    return compile_for_each_mpi(first, tmp_path_factory.mktemp("windows"), *more)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=NODES) as nodes:
        yield nodes


def run_windows(
    cluster: EphemeralCluster,
    program: Path,
    *arguments: object,
    ranks: int = 2,
    windows: str = "on",
) -> CompletedJob:
    """Run a mode of the program."""
    variables = {"VICINAL_WINDOWS": windows}
    return run_ranks(cluster, program, *arguments, ranks=ranks, variables=variables)


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 3, 4), COMMON_JOBS))
def test_drawn_operations(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int
) -> None:
    done = run_windows(cluster, programs[mpi], STEPS[mpi], 27, 6, 80, ranks=ranks)
    assert check_good(done, ranks) == ""


@pytest.mark.long
@pytest.mark.parametrize("seed", [101, 102, 103])
@pytest.mark.parametrize("mpi", MPIS)
def test_many_drawn_operations(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, seed: int
) -> None:
    done = run_windows(cluster, programs[mpi], STEPS[mpi], seed, 30, 200)
    assert check_good(done, 2) == ""


@pytest.mark.parametrize("mode", CONCURRENT, ids=lambda mode: str(mode[0]))
@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 4), [("mpich", 2)]))
def test_concurrent_operations(
    programs: dict[str, Path],
    cluster: EphemeralCluster,
    mpi: str,
    ranks: int,
    mode: tuple[object, ...],
) -> None:
    assert check_good(run_windows(cluster, programs[mpi], *mode, ranks=ranks), ranks) == ""


@pytest.mark.parametrize("mpi", MPIS)
def test_a_put_needs_no_call_of_its_target(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str
) -> None:
    assert check_good(run_windows(cluster, programs[mpi], "direct"), 2) == "direct"
    off = run_windows(cluster, programs[mpi], "direct", windows="off")
    assert check_good(off, 2) == "by messages"


def test_a_window_that_is_too_long_for_the_heap_is_told_once(
    programs: dict[str, Path], cluster: EphemeralCluster
) -> None:
    done = run_windows(cluster, programs["mpich"], "churn", 120)
    assert check_good(done, 2) == ""
    lines = [line for line in done.stderr.splitlines() if "no room for a window" in line]
    assert len(lines) == 2
    assert all("--heap region:SIZE" in line for line in lines)
