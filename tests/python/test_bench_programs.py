"""The MPI programs, over real MPI libraries between isolated nodes."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vicinal.bench.limits import measure_limits
from vicinal.bench.machine import choose_cpus
from vicinal.bench.programs import mpi_program
from vicinal.cluster.native import NativeCluster
from vicinal.errors import VicinalError
from vicinal.launch.environment import MessagePath, Mpi, mpi_prefix
from vicinal.launch.job import CompletedJob, Job
from vicinal.launch.running import launch

CHECKS = [
    *("sizes", "sendrecv", "order", "self", "storm", "collectives", "tags"),
    *("any-source", "unexpected", "ssend", "probe", "cancel", "truncate"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[NativeCluster]:
    with NativeCluster(nodes=2) as nodes:
        yield nodes


def run(
    cluster: NativeCluster,
    mpi: Mpi,
    path: MessagePath,
    program: str,
    *arguments: object,
    ranks: int = 2,
    environment: dict[str, str] | None = None,
) -> CompletedJob:
    job = Job(
        program=[str(mpi_program(mpi, program)), *map(str, arguments)],
        ranks=ranks,
        mpi=mpi,
        path=path,
        environment=environment or {},
    )
    return launch(job, cluster, timeout=120)


def records(done: CompletedJob) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def beyond(mpi: Mpi, path: MessagePath) -> str | None:
    """The one check that an MPI library cannot pass on a path that is not ours."""
    if mpi is Mpi.OPENMPI and path is not MessagePath.REGION:
        return "truncate"  # Open MPI 5.0.11 (pml ob1) crashes after a truncated rendezvous
    if mpi is Mpi.MPICH and path is MessagePath.NETWORK:
        return "unexpected"  # libfabric 2.5's tcp hangs behind many unexpected messages
    return None


@pytest.mark.parametrize("mpi", list(Mpi))
@pytest.mark.parametrize("path", list(MessagePath))
def test_every_byte_arrives(cluster: NativeCluster, mpi: Mpi, path: MessagePath) -> None:
    skipped = beyond(mpi, path)
    arguments = ["--rounds", 2, *(["--skip", skipped] if skipped else [])]
    done = run(cluster, mpi, path, "verify", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    results = records(done)
    assert [result["check"] for result in results] == [
        check for check in CHECKS if check != skipped
    ]
    assert all(result["errors"] == 0 for result in results)
    assert sum(result["bytes"] for result in results) > 100_000_000


@pytest.mark.parametrize("mpi", list(Mpi))
def test_every_byte_arrives_between_many(cluster: NativeCluster, mpi: Mpi) -> None:
    done = run(
        cluster, mpi, MessagePath.REGION, "verify", "--max-size", 65536, "--seed", 7, ranks=4
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [result["check"] for result in records(done)] == CHECKS


def test_verify_finds_a_single_wrong_bit(cluster: NativeCluster, tmp_path: Path) -> None:
    library = tmp_path / "wrong_byte.so"
    source = Path(__file__).with_name("bench_wrong_byte.c")
    compiler = mpi_prefix(Mpi.MPICH) / "bin" / "mpicc"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    done = run(
        cluster,
        Mpi.MPICH,
        MessagePath.SHARED_MEMORY,
        "verify",
        "--only",
        "sizes",
        environment={"LD_PRELOAD": str(library)},
    )
    assert done.returncode == 1
    (result,) = records(done)
    assert result["errors"] == 2  # one in each direction
    assert "byte 500 of message 1000 of 1000 bytes" in result["first_error"]


def test_verify_names_what_it_was_asked_wrongly(cluster: NativeCluster) -> None:
    done = run(cluster, Mpi.MPICH, MessagePath.SHARED_MEMORY, "verify", "--only", "nothing")
    assert done.returncode != 0
    assert "verify: error: no check has that name: use verify" in done.stderr


@pytest.mark.parametrize("mpi", list(Mpi))
@pytest.mark.parametrize(
    ("program", "field"), [("latency", "microseconds"), ("bandwidth", "megabytes_per_second")]
)
def test_every_repetition_of_every_size_is_printed(
    cluster: NativeCluster, mpi: Mpi, program: str, field: str
) -> None:
    arguments = ["--sizes", "0,8,70000", "--repetitions", 2, "--seconds", 0.001]
    done = run(cluster, mpi, MessagePath.NETWORK, program, *arguments)
    assert done.returncode == 0, done.stderr
    head, *values = records(done)
    assert head["program"] == program
    assert head["hosts"] == ["node0", "node1"]
    assert [(value["size"], value["repetition"]) for value in values] == [
        (size, repetition) for size in (0, 8, 70000) for repetition in (0, 1)
    ]
    assert all(value[field] > 0 for value in values if value["size"])


def test_a_measuring_program_wants_two_ranks(cluster: NativeCluster) -> None:
    done = run(cluster, Mpi.MPICH, MessagePath.SHARED_MEMORY, "latency", ranks=1)
    assert done.returncode != 0
    assert "latency: error: started with 1 ranks: start it with 2" in done.stderr


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(VicinalError, match="the program nonsense is not part of"):
        mpi_program(Mpi.MPICH, "nonsense")


def test_the_limits_of_the_machine_are_measured() -> None:
    limits = measure_limits(choose_cpus(), repetitions=2)
    assert [limit["unit"] for limit in limits] == ["ns", "MB/s", "MB/s", "MB/s", "MB/s"]
    assert all(len(limit["raw"][0]) == 2 for limit in limits)
