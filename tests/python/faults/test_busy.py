"""A rank that computes delays no other rank: sends to it return, and other ranks are reached."""

import itertools
import tempfile
import time
from pathlib import Path

import pytest
from launch_support import GUARD_SECONDS, ONE_MPI, compile_for_each_mpi, square, wait_for

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob, launch
from vicinal.mpi.job import Job

RANKS = 3
SIZES = 8
"""How many sizes of messages busy_ranks.c sends."""


@pytest.fixture(scope="module")
def busy_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """busy_ranks.c, by the name of the MPI that compiled it."""
    source = Path(__file__).with_name("busy_ranks.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("busy"))


@pytest.mark.parametrize(
    ("mpi", "hosts"),
    square(("mpich", "openmpi"), (1, RANKS), (("mpich", 1), ("openmpi", 1))),
)
def test_no_send_waits_for_a_rank_that_computes(
    busy_ranks: dict[str, Path], tmp_path: Path, mpi: str, hosts: int
) -> None:
    with EphemeralCluster(nodes=RANKS) as cluster:
        job = Job([str(busy_ranks[mpi]), str(tmp_path)], RANKS, mpi=mpi, hosts=hosts)
        done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}: good" for rank in range(RANKS)]


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_no_send_waits_for_a_rank_that_computes_while_it_is_moved(
    busy_ranks: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    """The ranks move from the region to the network and back, without the computing rank's help."""
    job = Job([str(busy_ranks[mpi]), str(tmp_path), "moving"], RANKS, mpi=mpi)
    with (
        tempfile.TemporaryFile() as output,
        EphemeralCluster(nodes=RANKS) as cluster,
        RunningJob(job, cluster, stdout=output) as running,
    ):
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        moves = itertools.cycle((region.detach, region.attach))
        for number, move in zip(range(SIZES), moves, strict=False):
            await_file(tmp_path / f"posted-{number}")
            outcome = move(Path(running.region_states()[0].path), timeout=0.2)
            assert any("computes without calling MPI" in trouble for trouble in outcome.troubles)
            (tmp_path / f"moved-{number}").touch()
        assert running.wait(GUARD_SECONDS) == 0
        output.seek(0)
        lines = output.read().decode().splitlines()
    assert sorted(lines) == [f"rank {rank}: good" for rank in range(RANKS)]


def await_file(path: Path) -> None:
    """Wait until a rank has made the file."""
    for _ in range(int(GUARD_SECONDS / 0.01)):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path.name} is missing")


def test_a_send_beyond_the_bound_waits_and_says_so(
    busy_ranks: dict[str, Path], tmp_path: Path
) -> None:
    """The job then waits for ever, because the receiver waits for this send to return."""
    errors = tmp_path / "errors"
    program = [str(busy_ranks["mpich"]), str(tmp_path)]
    bound = {"VICINAL_SEND_QUEUE": "16K"}
    with (
        errors.open("wb") as stderr,
        EphemeralCluster(nodes=RANKS) as cluster,
        RunningJob(Job(program, RANKS, mpi="mpich", environment=bound), cluster, stderr=stderr),
    ):
        wait_for(errors, "raise VICINAL_SEND_QUEUE")
    assert "wait for busy peers: further sends wait, too." in errors.read_text()
