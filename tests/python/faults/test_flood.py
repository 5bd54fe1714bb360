"""A rank that receives nothing of a flood loses none of it, and reaches other ranks meanwhile."""

from pathlib import Path

import pytest
from launch_support import GUARD_SECONDS, compile_for_each_mpi, square, wait_for

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob
from vicinal.mpi.job import Job

RANKS = 3


@pytest.fixture(scope="module")
def flood_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """flood_ranks.c, by the name of the MPI that compiled it."""
    source = Path(__file__).with_name("flood_ranks.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("flood"))


@pytest.mark.parametrize(
    ("mpi", "hosts"),
    square(("mpich", "openmpi"), (1, RANKS), (("mpich", 1), ("mpich", RANKS))),
)
def test_a_flood_waits_for_its_receives(
    flood_ranks: dict[str, Path], tmp_path: Path, mpi: str, hosts: int
) -> None:
    output, errors, receives = (tmp_path / name for name in ("output", "errors", "receives"))
    few = {"VICINAL_UNEXPECTED": "16K"}
    job = Job([str(flood_ranks[mpi]), str(receives)], RANKS, mpi=mpi, hosts=hosts, environment=few)
    with (
        output.open("wb") as stdout,
        errors.open("wb") as stderr,
        EphemeralCluster(nodes=RANKS) as cluster,
        RunningJob(job, cluster, stdout=stdout, stderr=stderr) as running,
    ):
        wait_for(errors, "Post their receives first, or raise VICINAL_UNEXPECTED")
        receives.touch()
        assert running.wait(GUARD_SECONDS) == 0, output.read_text() + errors.read_text()
    good = [f"rank {rank}: good" for rank in range(RANKS)]
    assert sorted(output.read_text().splitlines()) == good
