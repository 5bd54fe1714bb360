"""The MPI programs, with real MPI libraries, between isolated nodes."""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from launch_support import long_unless, square

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.labs.bench.jobs import choose_cpus
from vicinal.labs.bench.running import measure_limits, run_memory
from vicinal.labs.programs import fabric_program, memory_program, mpi_program
from vicinal.launch.running import REGION_PREFIX, launch
from vicinal.mpi.environment import MessagePath, Mpi, mpi_prefix, provider_directory
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.libraries import STANDARD
from vicinal.region import Region, create, inspect

CHECKS = [
    *("sizes", "sendrecv", "order", "self", "storm", "collectives", "tags"),
    *("any-source", "unexpected", "ssend", "probe", "cancel", "truncate"),
]


ONE_STANDARD = [pytest.param(mpi, marks=long_unless(mpi is Mpi.MPICH)) for mpi in STANDARD]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as nodes:
        yield nodes


def run(
    cluster: EphemeralCluster,
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
    """The check that an MPI library cannot pass over a path other than the region, if any."""
    if mpi is Mpi.OPENMPI and path is not MessagePath.REGION:
        return "truncate"  # Open MPI 5.0.11 (pml ob1) crashes after a truncated rendezvous
    if mpi is Mpi.MPICH and path is MessagePath.NETWORK:
        return "unexpected"  # libfabric 2.5's tcp hangs if many unexpected messages arrive
    return None


@pytest.mark.parametrize(
    ("mpi", "path"),
    square(
        STANDARD,
        MessagePath,
        [(Mpi.MPICH, MessagePath.NETWORK), (Mpi.OPENMPI, MessagePath.REGION)],
    ),
)
def test_every_byte_arrives(cluster: EphemeralCluster, mpi: Mpi, path: MessagePath) -> None:
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


@pytest.mark.parametrize("mpi", ONE_STANDARD)
def test_every_byte_arrives_between_many(cluster: EphemeralCluster, mpi: Mpi) -> None:
    done = run(
        cluster, mpi, MessagePath.REGION, "verify", "--max-size", 65536, "--seed", 7, ranks=4
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [result["check"] for result in records(done)] == CHECKS


def test_verify_finds_a_single_wrong_bit(cluster: EphemeralCluster, tmp_path: Path) -> None:
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


def test_verify_names_what_it_was_asked_wrongly(cluster: EphemeralCluster) -> None:
    done = run(cluster, Mpi.MPICH, MessagePath.SHARED_MEMORY, "verify", "--only", "nothing")
    assert done.returncode != 0
    assert "verify: error: no check has that name: use verify" in done.stderr


@pytest.mark.parametrize(
    ("mpi", "program", "field"),
    square(
        STANDARD,
        [
            pytest.param("latency", "microseconds"),
            pytest.param("bandwidth", "megabytes_per_second"),
        ],
        [
            (Mpi.OPENMPI, "latency", "microseconds"),
            (Mpi.MPICH, "bandwidth", "megabytes_per_second"),
        ],
    ),
)
def test_every_repetition_of_every_size_is_printed(
    cluster: EphemeralCluster, mpi: Mpi, program: str, field: str
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


def test_a_measuring_program_wants_two_ranks(cluster: EphemeralCluster) -> None:
    done = run(cluster, Mpi.MPICH, MessagePath.SHARED_MEMORY, "latency", ranks=1)
    assert done.returncode != 0
    assert "latency: error: started with 1 ranks: start it with 2" in done.stderr


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(VicinalError, match="no source of the program nonsense"):
        mpi_program(Mpi.MPICH, "nonsense")


@pytest.mark.parametrize("repetitions", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_limits_of_the_machine_are_measured(repetitions: int) -> None:
    limits = measure_limits(choose_cpus(), repetitions=repetitions)
    assert [limit["unit"] for limit in limits] == ["ns", *["MB/s"] * 8]
    assert all(len(limit["raw"][0]) == repetitions for limit in limits)


def test_the_pipelined_copy_is_that_of_its_best_chunks() -> None:
    records = run_memory(choose_cpus(), ["--only", "pipeline", "--sizes", "300000"])
    chunks = {record["chunk"] for record in records}
    assert len(chunks) > 1
    assert {record["way"] for record in records} == {"memcpy", "past-cache"}
    assert all(record["size"] == 300000 for record in records)
    assert all(record["megabytes_per_second"] > 0 for record in records)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["0", "0"], "two different CPUs are needed"),
        (["0", "1", "--only", "nothing"], "there is no such limit"),
        (["0", "1", "--sizes", "8,,9"], "not a number"),
        (["0", "1", "--size", "8"], "an option that does not exist"),
    ],
)
def test_memory_names_what_it_was_asked_wrongly(arguments: list[str], problem: str) -> None:
    done = subprocess.run(
        [memory_program(), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"memory: error: {problem}: use memory" in done.stderr


@pytest.mark.parametrize("mpi", ONE_STANDARD)
def test_the_overhead_of_an_mpi_is_measured_by_one_rank(
    cluster: EphemeralCluster, mpi: Mpi
) -> None:
    arguments = ["--sizes", "8", "--repetitions", 2, "--seconds", 0.001]
    done = run(cluster, mpi, MessagePath.SHARED_MEMORY, "overhead", *arguments, ranks=1)
    assert done.returncode == 0, done.stderr
    assert [value["microseconds"] > 0 for value in records(done)[1:]] == [True, True]


@pytest.mark.parametrize(
    ("mpi", "window"),
    square(STANDARD, ["create", "allocate"], [(Mpi.MPICH, "create"), (Mpi.OPENMPI, "allocate")]),
)
def test_one_sided_operations_are_checked_and_timed(
    cluster: EphemeralCluster, mpi: Mpi, window: str
) -> None:
    arguments = ["--window", window, "--sizes", "8,64", "--repetitions", 1, "--seconds", 0.001]
    done = run(cluster, mpi, MessagePath.SHARED_MEMORY, "onesided", *arguments)
    assert done.returncode == 0, done.stderr
    assert [(value["operation"], value["size"]) for value in records(done)[1:]] == [
        *((operation, 8) for operation in ("put", "get", "accumulate", "fetch-and-op")),
        *((operation, 64) for operation in ("put", "get", "accumulate")),
    ]


@pytest.mark.parametrize(
    "path", [MessagePath.REGION, pytest.param(MessagePath.NETWORK, marks=pytest.mark.long)]
)
def test_collective_operations_are_checked_and_timed(
    cluster: EphemeralCluster, path: MessagePath
) -> None:
    arguments = ["--sizes", "8,70000", "--repetitions", 1, "--seconds", 0.001]
    done = run(cluster, Mpi.MPICH, path, "collectives", *arguments)
    assert done.returncode == 0, done.stderr
    assert [(value["operation"], value["size"]) for value in records(done)[1:]] == [
        (operation, size)
        for size in (8, 70000)
        for operation in (
            *("barrier", "bcast", "reduce", "allreduce", "reduce-scatter"),
            *("gather", "scatter", "allgather", "alltoall"),
        )
    ]


def run_fabric_program(
    region: Region, name: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that uses libfabric directly, over this region."""
    return subprocess.run(
        [fabric_program(name), *arguments],
        env=os.environ
        | {
            "FI_PROVIDER": "vicinal",
            "FI_PROVIDER_PATH": str(provider_directory()),
            "VICINAL_REGION": region.name,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_idle_peers_are_measured(tmp_path: Path) -> None:
    with create(tmp_path / "region", members=3) as region:
        done = run_fabric_program(region, "peers", "2", "1")
        assert done.returncode == 0, done.stderr
        assert len(inspect(region.path).connections) >= 4
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["peers"] == 2
    assert record["steady_nanoseconds"] > 0


@pytest.mark.parametrize(("size", "window"), [(8, 0), (8, 64), (65536, 3)])
def test_messages_between_two_processes_are_measured(
    tmp_path: Path, size: int, window: int
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    pair = (str(cpus[0]), str(cpus[1 % len(cpus)]))
    with create(tmp_path / "region", members=2) as region:
        done = run_fabric_program(region, "exchange", *pair, str(size), str(window))
        assert done.returncode == 0, done.stderr
        assert len({each.sender for each in inspect(region.path).connections}) == 2
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert (record["size"], record["window"]) == (size, window)
    assert 0 < record["fastest_nanoseconds"] <= record["nanoseconds"]


@pytest.mark.parametrize("words", ["0 0 16 0", "0 0 8 65", "0 0 0 1", "0 0 8"])
def test_messages_that_cannot_be_measured_are_refused(tmp_path: Path, words: str) -> None:
    with create(tmp_path / "region", members=2) as region:
        done = run_fabric_program(region, "exchange", *words.split())
    assert done.returncode == 2
    assert "use exchange CPU CPU SIZE WINDOW" in done.stderr


def test_messages_beside_idle_network_peers_are_measured(tmp_path: Path) -> None:
    """Two ends in one region, each with two endpoints, and two more endpoints in another region."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("the two ends want a CPU each")
    with (
        create(tmp_path / "region", members=4) as region,
        create(tmp_path / "other", members=2) as other,
    ):
        done = run_fabric_program(
            region, "idle_peers", *map(str, cpus[:2]), "2", other.name, "1", "5"
        )
        assert done.returncode == 0, done.stderr
        # Both pairs are connected through the region, and no other endpoints are.
        assert len({each.sender for each in inspect(region.path).connections}) == 4
        assert not inspect(other.path).connections
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["idle"] == 2
    assert record["without_idle_nanoseconds"] > 0
    assert record["with_idle_nanoseconds"] > 0


def test_what_the_network_path_adds_is_measured(cluster: EphemeralCluster) -> None:
    """Both ends of both pairs are in two nodes, which share only the file where the ends meet."""
    meeting = f"{EXCHANGE}/across"
    variables = ["FI_PROVIDER=vicinal,tcp,net", f"FI_PROVIDER_PATH={provider_directory()}"]
    program = str(fabric_program("across"))
    cpus = sorted(os.sched_getaffinity(0))

    def run_end(end: int) -> str:
        arguments = [str(end), str(cpus[end % len(cpus)]), meeting, "2", "5"]
        return cluster.run_in(f"node{end}", ["env", *variables, program, *arguments])

    with ThreadPoolExecutor(max_workers=2) as both:
        left, right = both.map(run_end, range(2))
    found = [json.loads(line) for line in left.splitlines()]
    assert right == ""
    assert [record["repetition"] for record in found] == [0, 1]
    assert all(record["core"] in ("tcp", "net") for record in found)
    assert all(record["core_nanoseconds"] > 0 and record["ratio"] > 0 for record in found)


def test_across_names_what_it_was_asked_wrongly() -> None:
    done = subprocess.run(
        [fabric_program("across"), "2", "0", "nowhere"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "end 0 or 1, a CPU" in done.stderr


@pytest.mark.parametrize(("program", "status"), [("true", 0), ("false", 1)])
def test_a_job_in_nodes_that_stay_takes_its_region_away(
    cluster: EphemeralCluster, program: str, status: int
) -> None:
    job = Job(program=[f"/bin/{program}"], ranks=2, mpi=Mpi.MPICH, path=MessagePath.REGION)
    assert launch(job, cluster, timeout=120).returncode == status
    assert list(cluster.exchange.glob(f"{REGION_PREFIX}*")) == []
