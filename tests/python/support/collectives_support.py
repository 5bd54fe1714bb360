"""What the tests of collective operations share: their program's modes, and how its jobs run."""

from collections.abc import Mapping
from pathlib import Path

from command_support import CHECKOUT
from launch_support import GUARD_SECONDS, compile_for_each_mpi

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import launch
from vicinal.mpi.job import CompletedJob, Job

SOURCES = CHECKOUT / "tests/collectives"

COLLECTIVES = (
    *("barrier", "bcast", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block"),
    *("allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv"),
    *("alltoall", "alltoallv", "alltoallw", "scan", "exscan"),
)
"""The operations that the program knows."""


def compile_collectives(directory: Path) -> dict[str, Path]:
    """The program of tests/collectives, by the name of the MPI that it was compiled for."""
    first, *more = sorted(SOURCES.glob("*.c"))
    return compile_for_each_mpi(first, directory, *more)


def run_ranks(
    cluster: EphemeralCluster,
    program: Path,
    *arguments: object,
    ranks: int,
    variables: Mapping[str, str] | None = None,
) -> CompletedJob:
    """Run the program with a mode, numbers and options: see tests/collectives/main.c."""
    words = [str(program), *map(str, arguments)]
    job = Job(words, ranks=ranks, environment=dict(variables or {}))
    return launch(job, cluster, timeout=GUARD_SECONDS)


def check_good(done: CompletedJob, ranks: int) -> str:
    """Check that all ranks ended well. Returns what else they printed."""
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    good = [f"rank {rank}: good" for rank in range(ranks)]
    assert sorted(line for line in lines if line in good) == good, done.stdout
    return "\n".join(line for line in lines if line not in good)
