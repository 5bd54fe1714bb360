"""Results of collective operations between isolated nodes, against those that each rank computes.

A failure prints seed and step; `collectives steps SEED STEP 1` repeats the step.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from collectives_support import COLLECTIVES, SOURCES, check_good, compile_collectives, run_ranks
from launch_support import GUARD_SECONDS, MPIS, square

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import launch
from vicinal.mpi.environment import mpi_prefix
from vicinal.mpi.job import Job
from vicinal.mpi.traffic import job_traffic

NODES = 4
SHORT_SEED, SHORT_STEPS = 27, 100
LONG_SEEDS, LONG_STEPS = (101, 102), 1000
COMMON_JOBS = (("mpich", 2), ("mpich", 4), ("openmpi", 3))

WRONG_AFTER_DEATH = (("mpich", "reduce_scatter_block"), ("openmpi", "allgatherv"))
"""Operations that may succeed with wrong data when a rank has ended: the MPI library loses the
error of a receive. MPICH 5.0.2; Open MPI 5.0.11 in 3 of 14 runs without our collectives, always on
the rank that receives from the ended one."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_collectives(tmp_path_factory.mktemp("collectives"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=NODES) as nodes:
        yield nodes


def test_the_operations_are_those_of_the_program() -> None:
    source = (SOURCES / "steps.c").read_text()
    table = source[source.index("collective_names[] = {") :].split("NULL")[0]
    assert sorted(table.split('"')[1::2]) == sorted(COLLECTIVES)


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 3, 4), COMMON_JOBS))
def test_drawn_steps(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int
) -> None:
    done = run_ranks(
        cluster, programs[mpi], "steps", SHORT_SEED, 0, SHORT_STEPS, "bytes=150000", ranks=ranks
    )
    assert check_good(done, ranks) == ""


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("mpi", MPIS)
def test_many_drawn_steps(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int, seed: int
) -> None:
    done = run_ranks(cluster, programs[mpi], "steps", seed, 0, LONG_STEPS, ranks=ranks)
    assert check_good(done, ranks) == ""


@pytest.mark.long
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("mpi", MPIS)
def test_one_operation_after_another(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, name: str
) -> None:
    """The same operation on one communicator, so that no other operation separates two of them."""
    done = run_ranks(cluster, programs[mpi], "steps", 5, 0, 200, f"only={name}", "world", ranks=3)
    assert check_good(done, 3) == ""


@pytest.mark.parametrize("heap", [8 << 10, 56 << 10, 200 << 10])
@pytest.mark.parametrize("mpi", MPIS)
def test_small_heaps(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, heap: int
) -> None:
    """Room for one communicator's cells alone, and for short and middle pieces of long data."""
    name = f"small-{mpi}-{heap}"
    region.create(cluster.exchange / name, members=8, heap_bytes=heap)
    job = Job(
        [str(programs[mpi]), *["steps", "31", "0", "80", "world", "bytes=150000"]],
        ranks=3,
        mpi=mpi,
        region=f"file:{EXCHANGE}/{name}",
    )
    done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert check_good(done, 3) == ""
    assert done.region is not None
    through = [each.collectives for each in job_traffic(done.region).direct.values()]
    assert len(through) == 3
    assert min(through) > 20


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 3, 4), [("mpich", 2)]))
def test_threads_with_a_communicator_each(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int
) -> None:
    done = run_ranks(cluster, programs[mpi], "threads", 1, 3, 40, "bytes=150000", ranks=ranks)
    assert check_good(done, ranks) == ""


@pytest.mark.parametrize(("mpi", "count"), square(MPIS, (150, 2000), [("mpich", 150)]))
def test_communicators_made_and_freed(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, count: int
) -> None:
    done = run_ranks(cluster, programs[mpi], "churn", 3, count, ranks=2)
    assert check_good(done, 2) == ""


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 3, 4), [("mpich", 3)]))
def test_rounded_sums_are_the_same_on_all_ranks_and_in_two_runs(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int
) -> None:
    runs = [run_ranks(cluster, programs[mpi], "sums", 9, 30, ranks=ranks) for _ in range(2)]
    first, second = (check_good(done, ranks) for done in runs)
    assert first.startswith("sums ")
    assert first == second


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "name", "words"),
    [
        ("early", "barrier", "left the barrier"),
        ("value", "bcast", "expected"),
        ("beyond", "bcast", "no data was overwritten"),
        ("order", "allreduce", "composition"),
        ("nothing", "allreduce", "expected"),
        ("idle", "scan", "stuck: "),
    ],
)
def test_a_library_that_does_it_wrong_is_noticed(
    programs: dict[str, Path],
    cluster: EphemeralCluster,
    tmp_path: Path,
    wrong: str,
    name: str,
    words: str,
) -> None:
    library = tmp_path / "wrong.so"
    source = Path(__file__).with_name("wrong_collectives.c")
    compiler = mpi_prefix("mpich") / "bin/mpicc"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-o", library, source], check=True)
    done = run_ranks(
        cluster,
        programs["mpich"],
        *("steps", 8, 0, 60, f"only={name}", "bytes=150000", "stuck=2"),
        ranks=2,
        variables={"LD_PRELOAD": str(library), "WRONG": wrong},
    )
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize(
    ("mpi", "name"), square(MPIS, COLLECTIVES, (("mpich", "allreduce"), ("openmpi", "bcast")))
)
def test_a_job_ends_when_a_rank_dies_in_an_operation(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, name: str
) -> None:
    """Killed, the rank is missed by the launcher; when it exits, the other ranks see it first."""
    number = COLLECTIVES.index(name)
    victim, how = number % 3, ("kill", "exit")[number % 2]
    options = (f"only={name}", "world", "bytes=150000", "stuck=30")
    arguments = ("death", number, victim, 50 + 13 * number, how, *options)
    done = run_ranks(cluster, programs[mpi], *arguments, ranks=3)
    assert done.returncode != 0
    assert "good" not in done.stdout
    for word in ("stuck:", "crashed:"):
        assert word not in done.stderr, done.stderr
    assert "wrong:" not in done.stderr or (mpi, name) in WRONG_AFTER_DEATH, done.stderr
