"""The program transform over real MPI libraries, and its driver."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_support import GUARD_SECONDS, square
from workload_support import figures, read, recorded, same, workload

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.labs.programs import mpi_program
from vicinal.labs.study.file.model import Quantity, Workload
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Tools
from vicinal.launch.running import launch
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import STANDARD, Mpi, mpi_prefix
from vicinal.mpi.traffic import job_traffic

TOOLS = Tools()
RAND = workload("transform", "rand", quantity=Quantity.TIME, options={"size": 16})
SPEC = workload("transform", "spec", quantity=Quantity.TIME, options={"size": 16}, ranks=3)
RECORDINGS = [(RAND, "transform-mpich.txt"), (SPEC, "transform-openmpi.txt")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as nodes:
        yield nodes


@pytest.mark.parametrize(
    ("mpi", "operation", "ranks"),
    square(
        STANDARD,
        [
            pytest.param("sine", 2),
            pytest.param("rand", 3),
            pytest.param("inverse", 2),
            pytest.param("spec", 3),
        ],
        [(Mpi.MPICH, "sine", 2), (Mpi.OPENMPI, "rand", 3), (Mpi.MPICH, "spec", 3)],
    ),
)
def test_a_transform_is_checked_and_timed(
    cluster: EphemeralCluster, mpi: Mpi, operation: str, ranks: int
) -> None:
    """With three ranks, the ranks have parts of different sizes."""
    asked = workload(
        "transform", operation, ranks=ranks, samples=7, seconds=60.0, options={"size": 16}
    )
    driver = drivers()["transform"]
    assert driver.missing(asked, mpi, TOOLS) is None
    program = driver.program(asked, mpi, TOOLS)
    done = launch(Job(program.command, program.ranks, mpi), cluster, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.region is not None
    # Seven forward and back, one before, and the check of sines: all numbers but a rank's own part.
    traffic = job_traffic(done.region)
    moved = sum(p.bytes for p in traffic.pairs if p.sender != p.receiver)
    moved += sum(each.collective_bytes for each in traffic.direct.values())
    assert moved > 17 * 16**3 * 16 * (1 - 1 / ranks) * 0.9
    measured = read(asked, done.stdout)
    assert [(each.rank, len(each.nanoseconds)) for each in measured.series] == [
        (rank, 7) for rank in range(ranks)
    ]
    found = figures(measured)
    assert 0 < found["communication", None, "s"] < found["time", None, "s"] < done.seconds


def test_means_are_of_the_slowest_rank() -> None:
    lines = [json.loads(line) for line in recorded("transform-openmpi.txt").splitlines()]
    rows = np.array([line["nanoseconds"] for line in lines if "nanoseconds" in line])
    assert rows.shape == (3, 12)
    measured = read(SPEC, recorded("transform-openmpi.txt"))
    assert figures(measured)["time", None, "s"] == pytest.approx(rows.max(axis=0).mean() / 1e9)
    assert [each.nanoseconds.tolist() for each in measured.series] == rows.tolist()


WRONG = """
#include <mpi.h>
int MPI_Alltoallv(const void *sent, const int *counts, const int *offsets, MPI_Datatype type,
                  void *received, const int *received_counts, const int *received_offsets,
                  MPI_Datatype received_type, MPI_Comm all)
{
    static int calls;
    int result = PMPI_Alltoallv(sent, counts, offsets, type, received, received_counts,
                                received_offsets, received_type, all);
    if (++calls == CALL)
        ((double *)received)[5] += 1e-3;
    return result;
}
"""


@pytest.mark.parametrize(
    ("call", "problem"), [(1, "the spectrum of sines"), (9, "the transform there and back")]
)
def test_a_wrong_number_is_found(
    cluster: EphemeralCluster, tmp_path: Path, call: int, problem: str
) -> None:
    """The first exchange belongs to the check, the ninth to the timed iterations."""
    (tmp_path / "wrong.c").write_text(WRONG)
    library, compiler = tmp_path / "wrong.so", mpi_prefix(Mpi.MPICH) / "bin" / "mpicc"
    command = [str(compiler), "-shared", "-fPIC", f"-DCALL={call}", "-o", str(library)]
    subprocess.run([*command, tmp_path / "wrong.c"], check=True)
    program = [str(mpi_program(Mpi.MPICH, "transform")), "rand", "--size", "8"]
    job = Job(
        [*program, "--iterations", "5"], 2, Mpi.MPICH, environment={"LD_PRELOAD": str(library)}
    )
    done = launch(job, cluster, timeout=120)
    assert done.returncode != 0
    assert f"error: {problem} is wrong by" in done.stderr
    with pytest.raises(VicinalError, match="did not finish"):
        read(workload("transform", "rand", options={"size": 8}), done.stdout)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["sin"], "OPERATION is sine, rand, inverse or spec"),
        (["rand", "--size", "12"], "--size is a power of two from 4 to 1024"),
        (["rand", "--iterations", "0"], "--iterations and --seconds are more than 0"),
        (["rand", "--seconds"], "an option without its value"),
        (["rand", "--sizes", "8"], "an option that does not exist"),
    ],
)
def test_transform_names_what_it_was_asked_wrongly(arguments: list[str], problem: str) -> None:
    """One rank without a launcher prints the error."""
    done = subprocess.run(
        [mpi_program(Mpi.MPICH, "transform"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )
    assert done.returncode == 2
    assert f"transform: error: {problem}" in done.stderr


def test_transform_wants_no_more_ranks_than_its_cube_has_planes(cluster: EphemeralCluster) -> None:
    program = [str(mpi_program(Mpi.MPICH, "transform")), "rand", "--size", "4"]
    done = launch(Job(program, 5, Mpi.MPICH), cluster, timeout=120)
    assert done.returncode == 2
    assert "transform: error: --size is at least the number of ranks" in done.stderr


@pytest.mark.parametrize(
    ("operation", "values", "problem"),
    [
        ("sin", {}, "operation 'sin', .* choose one of sine, rand, inverse, spec"),
        ("sine", {"options": {"size": 48}}, "has size: 48: write a power of two"),
        ("sine", {"ranks": 128}, "sine on 128 ranks: use 1 to 64"),
        ("sine", {"sizes": (8,)}, "has sizes, but sine"),
        ("sine", {"samples": 0}, "asks for 0 samples"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(
    operation: str, values: dict[str, object], problem: str
) -> None:
    asked = workload("transform", operation, **values)
    with pytest.raises(VicinalError, match=problem):
        drivers()["transform"].program(asked, Mpi.MPICH, TOOLS)


@pytest.mark.parametrize(("asked", "name"), RECORDINGS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_output_that_was_cut_is_refused(asked: Workload, name: str, data: st.DataObject) -> None:
    whole = recorded(name)
    with pytest.raises(VicinalError):
        read(asked, whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(("asked", "name"), RECORDINGS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_output_with_a_wrong_character_is_an_error_or_can_be_true(
    asked: Workload, name: str, data: st.DataObject
) -> None:
    whole = recorded(name)
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.sampled_from('0123456789.-eE,"[]{}\n') | st.characters())
    try:
        measured = read(asked, whole[:at] + other + whole[at + 1 :])
    except VicinalError:
        return
    assert len(measured.series) == asked.ranks
    assert all(each.nanoseconds.min() >= 0 for each in measured.series)
    assert same(measured, measured)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"operation": "rand"', '"operation": "sine"', "ran another operation or size"),
        ('"size": 16', '"size": 32', "ran another operation or size"),
        ('"iterations": 12', '"iterations": 11', "times of a rank are missing"),
        ('"rank": 1', '"rank": 0', "ranks are missing"),
        ('"end": true, "ranks": 2', '"end": true, "ranks": 3', "ranks are missing"),
        ('"communication": [', '"communication": [9999999999', "more communication than time"),
    ],
)
def test_what_cannot_be_true_is_named(old: str, new: str, problem: str) -> None:
    text = recorded("transform-mpich.txt")
    assert old in text
    with pytest.raises(VicinalError, match=problem):
        read(RAND, text.replace(old, new))
