"""The program record with real MPI libraries in a region, and the reading of its output."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from container_support import two_runtimes
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_support import GUARD_SECONDS, square

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import ContainerCluster, remove_cluster
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.container.spec import Bind, ContainerSpec
from vicinal.labs.programs import mpi_program
from vicinal.labs.study.result.samples import slowest
from vicinal.labs.study.workloads.record import Recording, read_recording
from vicinal.launch.running import RunningJob, launch
from vicinal.mpi.environment import Mpi, mpi_prefix
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.libraries import STANDARD
from vicinal.mpi.traffic import pair_traffic

RECORDED = Path(__file__).parents[1] / "recorded"
SAMPLES = 200
READ_NS, LATE_NS, LATE_EVERY = 100, 5_000_000, 20
"""What the clock of record_clock.c advances for each reading, and for each 20th barrier."""
SLOW_NS = 20_000_000
"""The shortest time that a send takes with record_slow.c."""

PAIRS = ["latency", "bandwidth", "bidirectional"]
REMOTE = [
    f"{operation} --synchronization {way}"
    for operation in ("put", "get", "accumulate")
    for way in ("flush", "lock", "pscw", "fence")
] + [f"put-bidirectional --synchronization {way}" for way in ("pscw", "fence")]
COLLECTIVES = ["barrier", "bcast", "allgather", "allreduce", "alltoall"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as nodes:
        yield nodes


def run(
    cluster: EphemeralCluster,
    mpi: Mpi,
    *arguments: object,
    ranks: int = 2,
    environment: dict[str, str] | None = None,
) -> CompletedJob:
    program = [str(mpi_program(mpi, "record")), *map(str, arguments)]
    return launch(
        Job(program=program, ranks=ranks, mpi=mpi, environment=environment or {}),
        cluster,
        timeout=GUARD_SECONDS,
    )


def run_alone(
    *arguments: object, environment: Mapping[str, str], status: int = 0
) -> subprocess.CompletedProcess[str]:
    """One rank of MPICH, without a launcher."""
    done = subprocess.run(
        [mpi_program(Mpi.MPICH, "record"), *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )
    assert done.returncode == status, done.stderr
    return done


def record(cluster: EphemeralCluster, mpi: Mpi, *arguments: object, ranks: int = 2) -> Recording:
    """All requested samples, which must describe a job over a region."""
    done = run(
        cluster, mpi, *arguments, "--samples", SAMPLES, "--seconds", GUARD_SECONDS, ranks=ranks
    )
    assert done.returncode == 0, done.stderr
    assert done.region is not None
    assert pair_traffic(done.region)
    recording = read_recording(done.stdout)
    assert len(recording.hosts) == len(recording.clocks) == ranks
    assert set(recording.hosts) == {"node0", "node1"}
    for series in recording.series:
        assert len(series.nanoseconds) == SAMPLES
        assert series.nanoseconds.min() > 0
        assert series.nanoseconds.sum() < done.seconds * 1e9
    return recording


@pytest.mark.parametrize(
    ("mpi", "operation"),
    square(STANDARD, PAIRS, [(Mpi.MPICH, "bidirectional"), (Mpi.OPENMPI, "latency")]),
)
def test_messages_of_every_pair_are_recorded(
    cluster: EphemeralCluster, mpi: Mpi, operation: str
) -> None:
    recording = record(cluster, mpi, operation, "--sizes", "8,70000", ranks=4)
    assert not recording.apart
    assert [(series.size, series.rank) for series in recording.series] == [
        (size, rank) for size in (8, 70000) for rank in (0, 1)
    ]
    messages = {"latency": 2, "bandwidth": 64, "bidirectional": 128}[operation]
    assert {series.messages for series in recording.series} == {messages}


@pytest.mark.parametrize(
    ("mpi", "operation"),
    square(
        STANDARD,
        REMOTE,
        [
            (Mpi.MPICH, "put --synchronization flush"),
            (Mpi.OPENMPI, "get --synchronization lock"),
            (Mpi.MPICH, "accumulate --synchronization pscw"),
            (Mpi.OPENMPI, "put-bidirectional --synchronization fence"),
        ],
    ),
)
def test_one_sided_operations_are_checked_and_recorded(
    cluster: EphemeralCluster, mpi: Mpi, operation: str
) -> None:
    name, _, way = operation.split()
    recording = record(cluster, mpi, *operation.split(), "--window", 3, "--sizes", "8,4096")
    assert recording.operation == name
    assert recording.synchronization == way
    assert [(series.size, series.rank) for series in recording.series] == [(8, 0), (4096, 0)]
    messages = 6 if name == "put-bidirectional" else 3
    assert {series.messages for series in recording.series} == {messages}


@pytest.mark.parametrize(
    ("mpi", "operation"),
    square(
        STANDARD,
        COLLECTIVES,
        [(Mpi.MPICH, "barrier"), (Mpi.OPENMPI, "bcast"), (Mpi.MPICH, "alltoall")],
    ),
)
def test_collective_operations_are_recorded_on_every_rank(
    cluster: EphemeralCluster, mpi: Mpi, operation: str
) -> None:
    sizes = [] if operation == "barrier" else ["--sizes", "8,4096"]
    recording = record(cluster, mpi, operation, *sizes, ranks=3)
    assert recording.apart == (operation != "barrier")
    wanted = [0] if operation == "barrier" else [8, 4096]
    assert [(series.size, series.rank) for series in recording.series] == [
        (size, rank) for size in wanted for rank in range(3)
    ]
    for size in wanted:
        ranks = [series for series in recording.series if series.size == size]
        longest = slowest(ranks)
        assert all((longest >= series.nanoseconds).all() for series in ranks)
        assert (longest == np.max([series.nanoseconds for series in ranks], axis=0)).all()


@pytest.mark.parametrize(("operation", "readings"), [("barrier", 1), ("alltoall", 2)])
def test_an_iteration_is_recorded_by_one_or_two_readings_of_a_clock(
    tmp_path: Path, operation: str, readings: int
) -> None:
    """Nothing else is recorded. The cost is printed with each result, as part of its time."""
    environment = preload("record_clock.c", tmp_path)
    done = run_alone(operation, "--clock", "system", "--samples", SAMPLES, environment=environment)
    (clock,) = read_recording(done.stdout).clocks
    assert clock.recording_ns == READ_NS
    assert clock.iteration_ns == readings * READ_NS


def test_what_recording_costs_is_said(cluster: EphemeralCluster) -> None:
    (clock, _) = record(cluster, Mpi.MPICH, "latency", "--sizes", "8").clocks
    assert 0 < clock.recording_ns <= clock.iteration_ns + 0.01


def preload(source: str, directory: Path) -> dict[str, str]:
    """Variables that put a library of this folder between the program and MPICH."""
    path = Path(__file__).with_name(source)
    library = directory / f"{path.stem}.so"
    if not library.exists():
        compiler = mpi_prefix(Mpi.MPICH) / "bin" / "mpicc"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, path], check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize(("operation", "seen"), [("barrier", True), ("alltoall", False)])
def test_each_iteration_has_its_own_time(
    cluster: EphemeralCluster, tmp_path: Path, operation: str, seen: bool
) -> None:
    """Every 20th barrier is late. Samples of barriers show which; samples of operations after a
    barrier do not contain the delay.
    """
    environment = preload("record_clock.c", tmp_path)
    sizes = [] if operation == "barrier" else ["--sizes", "8"]
    arguments = [operation, *sizes, "--samples", 400, "--clock", "system"]
    done = run(cluster, Mpi.MPICH, *arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    for series in read_recording(done.stdout).series:
        late = np.flatnonzero(series.nanoseconds != READ_NS)
        assert len(series.nanoseconds) == 400
        assert len(late) == (400 // LATE_EVERY if seen else 0)
        assert {*np.diff(late)} <= {LATE_EVERY}
        assert {*series.nanoseconds[late]} <= {READ_NS + LATE_NS}


@two_runtimes
def test_samples_come_out_of_containers(tmp_path: Path, runtime: str) -> None:
    """The containers' file systems share nothing with each other or with the host."""
    program = mpi_program(Mpi.OPENMPI, "record")
    name = f"record{os.getpid()}"
    try:
        containers, _ = ContainerCluster.create(name, tmp_path)
        for number in range(2):
            wanted = ContainerSpec(
                cluster=name,
                name=f"node{number}",
                binds=(Bind(str(program.parent), str(program.parent)),),
            )
            containers.create_node(wanted, runtime)
        job = Job(
            program=[str(program), "bcast", "--sizes", "8", "--samples", str(SAMPLES)],
            ranks=2,
            directory=Path("/"),
        )
        done = launch(job, containers, timeout=120)
    finally:
        remove_cluster(name, tmp_path)
    assert done.returncode == 0, done.stderr
    recording = read_recording(done.stdout)
    assert recording.hosts == ["node0", "node1"]
    assert [series.rank for series in recording.series] == [0, 1]


@pytest.mark.parametrize("clock", ["counter", "system"])
def test_both_clocks_measure_the_same_time(
    cluster: EphemeralCluster, tmp_path: Path, clock: str
) -> None:
    """Messages sleep before they are sent, there and back. The fastest sample is compared."""
    environment = preload("record_slow.c", tmp_path)
    arguments = ["latency", "--sizes", 8, "--clock", clock, "--samples", 20, "--seconds", 60]
    done = run(cluster, Mpi.MPICH, *arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    recording = read_recording(done.stdout)
    assert {each.name for each in recording.clocks} == {clock}
    fastest = float(recording.series[0].nanoseconds.min())
    # The counter's rate is known to 0.1 percent, and a busy machine can only add time.
    assert 2 * SLOW_NS * 0.99 < fastest < done.seconds * 1e9 / 20


def test_so_many_samples_are_taken_as_fit_into_the_time(
    cluster: EphemeralCluster, tmp_path: Path
) -> None:
    """Each sample takes a millisecond: 8 in the last warm-up, which takes an eighth of the time."""
    environment = preload("record_clock.c", tmp_path)
    arguments = ["latency", "--sizes", "8", "--seconds", 0.05, "--clock", "system"]
    done = run(cluster, Mpi.MPICH, *arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    (series,) = read_recording(done.stdout).series
    assert len(series.nanoseconds) == 50


@pytest.mark.parametrize("operation", ["put", "bcast"])
def test_a_wrong_byte_is_found_before_anything_is_recorded(
    cluster: EphemeralCluster, tmp_path: Path, operation: str
) -> None:
    environment = preload("record_wrong.c", tmp_path)
    # MPICH's launcher may lose what a rank printed just before it aborted: in one trial 6 of 30
    # times.
    for _ in range(10):
        done = run(cluster, Mpi.MPICH, operation, "--sizes", "64", environment=environment)
        assert done.returncode == 3  # only the rank that finds a wrong byte ends with this status
        if done.stderr:
            break
    assert f"error: {operation} of 64 bytes is wrong at byte 3" in done.stderr
    with pytest.raises(VicinalError, match="ended before it printed all samples"):
        read_recording(done.stdout)


def test_a_run_that_was_killed_is_not_taken_for_a_whole_one(
    cluster: EphemeralCluster, tmp_path: Path
) -> None:
    program = [str(mpi_program(Mpi.MPICH, "record")), "latency", "--sizes", 8 << 20]
    job = Job(program=[*map(str, program), "--samples", "1000000", "--seconds", "1000"], ranks=2)
    path = tmp_path / "output"
    with path.open("wb") as output, RunningJob(job, cluster, stdout=output) as running:
        deadline = time.monotonic() + GUARD_SECONDS
        while b"format" not in path.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.1)
        running.close()
    text = path.read_text()
    assert '"format": 1' in text
    with pytest.raises(VicinalError, match="ended before it printed all samples"):
        read_recording(text)


@pytest.mark.parametrize(
    ("arguments", "ranks", "problem"),
    [
        ([], 2, "no operation has that name"),
        (["nothing"], 2, "no operation has that name"),
        (["latency"], 3, "latency started with 3 ranks: start it with 2, 4, 6, ..."),
        (["latency", "--samples", "0"], 2, "--samples is from 1 to 100000000"),
        (["latency", "--samples"], 2, "an option without its value"),
        (["latency", "--window", "4"], 2, "this operation has no --window"),
        (["latency", "--sample", "4"], 2, "an option that does not exist"),
        (["latency", "--sizes", "3000000000"], 2, "a size is too large for MPI"),
        (
            ["bcast", "--synchronization", "pscw"],
            2,
            "--synchronization applies only to one-sided operations",
        ),
        (["put", "--synchronization", "post"], 2, "--synchronization is flush, lock, pscw or"),
        (["put", "--sizes", "0"], 2, "sizes start at 1 here"),
        (["put-bidirectional"], 2, "puts in both directions need --synchronization pscw or fence"),
        (["allreduce", "--sizes", "12"], 2, "sizes are multiples of 8 bytes here"),
        (["latency", "--clock", "sun"], 2, "--clock is auto, counter or system"),
    ],
)
def test_record_names_what_it_was_asked_wrongly(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], ranks: int, problem: str
) -> None:
    """One rank without a launcher prints what the first of several ranks would print."""
    directory = tmp_path_factory.getbasetemp()
    environment = {"PRETENDED_RANKS": str(ranks), **preload("record_clock.c", directory)}
    done = run_alone(*arguments, environment=environment, status=2)
    assert f"record: error: {problem}" in done.stderr


def test_a_job_ends_with_what_it_was_asked_wrongly(cluster: EphemeralCluster) -> None:
    done = run(cluster, Mpi.MPICH, "latency", ranks=3)
    assert done.returncode == 2
    assert "record: error: latency started with 3 ranks" in done.stderr


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def test_recorded_output_is_read() -> None:
    recording = read_recording(recorded("latency-mpich"))
    assert recording.operation == "latency"
    assert recording.mpi.startswith("MPICH")
    assert recording.hosts == ["node0", "node1"]
    assert [clock.name for clock in recording.clocks] == ["counter", "counter"]
    assert [(series.size, series.messages) for series in recording.series] == [(8, 2), (65536, 2)]
    assert all(series.nanoseconds.shape == (40,) for series in recording.series)
    assert all(series.nanoseconds.dtype == np.int64 for series in recording.series)


def test_lines_of_an_mpi_library_are_passed_over() -> None:
    whole = recorded("bcast-openmpi")
    noisy = "a warning\n" + whole.replace('{"end"', 'another {warning}\n{"end"')
    recording = read_recording(noisy)
    assert recording.sample == "one call"
    assert [series.rank for series in recording.series] == [0, 1, 2, 3]
    for read, again in zip(recording.series, read_recording(whole).series, strict=True):
        assert (read.nanoseconds == again.nanoseconds).all()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_output_that_was_cut_is_refused(data: st.DataObject) -> None:
    whole = recorded("latency-mpich").rstrip()
    with pytest.raises(VicinalError):
        read_recording(whole[: data.draw(st.integers(0, len(whole) - 1))])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_samples_with_a_wrong_character_are_refused(data: st.DataObject) -> None:
    whole = recorded("latency-mpich")
    start, end = whole.index('{"rank"'), whole.index('{"end"')
    at = data.draw(st.integers(start, end - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda character: character != whole[at]))
    with pytest.raises(VicinalError):
        read_recording(whole[:at] + other + whole[at + 1 :])


@pytest.mark.parametrize(
    ("text", "instead", "problem"),
    [
        ('"format": 1', '"format": 2', r"newer format \(2\) than this Vicinal reads \(1\)"),
        ('"ranks": 2', '"ranks": "two"', "cannot be read"),
        ('"operation"', '"opera', "cannot be read"),
        ('"lines": 4', '"lines": 5', "its checksum does not match"),
        ('"lines": 4', '"lines": ', "cannot be read"),
    ],
)
def test_output_that_makes_no_sense_is_refused(text: str, instead: str, problem: str) -> None:
    damaged = recorded("latency-mpich").replace(text, instead)
    with pytest.raises(VicinalError, match=problem):
        read_recording(damaged)


def test_iterations_of_unequal_ranks_are_not_compared() -> None:
    series = read_recording(recorded("latency-mpich")).series
    with pytest.raises(VicinalError, match="cannot be compared"):
        slowest(series)
