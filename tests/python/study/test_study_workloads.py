"""The driver of record: from a workload of a study to its samples."""

import json
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch_support import long_unless
from workload_support import recorded, workload

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Tools
from vicinal.labs.study.workloads.record import Record
from vicinal.launch.running import launch
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import STANDARD, Mpi

TOOLS = Tools()
LATENCY = workload("record", "latency", sizes=(8, 65536))


def test_drivers_go_by_their_names() -> None:
    assert "record" in drivers()
    assert all(driver.name == name for name, driver in drivers().items())


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as nodes:
        yield nodes


RECORDED: list[tuple[str, dict[str, Any], list[tuple[int, int, int]]]] = [
    ("latency", {"sizes": (8, 4096)}, [(8, 0, 2), (4096, 0, 2)]),
    (
        "bandwidth",
        {"sizes": (64,), "ranks": 4, "options": {"window": 5}},
        [(64, 0, 5), (64, 1, 5)],
    ),
    ("put", {"sizes": (8,), "options": {"synchronization": "pscw"}}, [(8, 0, 1)]),
    ("put-bidirectional", {"sizes": (8,)}, [(8, 0, 2)]),
    ("barrier", {"ranks": 3}, [(0, 0, 1), (0, 1, 1), (0, 2, 1)]),
    ("allreduce", {"sizes": (16,)}, [(16, 0, 1), (16, 1, 1)]),
]


@pytest.mark.parametrize(
    ("mpi", "operation", "values", "series"),
    [
        pytest.param(mpi, *case, marks=long_unless((number + index) % 2 == 0))
        for number, mpi in enumerate(STANDARD)
        for index, case in enumerate(RECORDED)
    ],
)
def test_a_workload_becomes_samples(
    cluster: EphemeralCluster,
    mpi: Mpi,
    operation: str,
    values: dict[str, Any],
    series: list[tuple[int, int, int]],
) -> None:
    asked = workload("record", operation, **values)
    driver = Record()
    assert driver.missing(asked, mpi, TOOLS) is None
    program = driver.program(asked, mpi, TOOLS)
    done = launch(Job(program.command, program.ranks, mpi), cluster, timeout=120)
    assert done.returncode == 0, done.stderr
    measured = driver.read(asked, done.stdout)
    assert [(each.size, each.rank, each.messages) for each in measured.series] == series
    assert measured.figures == ()
    json.dumps(measured.facts)
    if operation == "put-bidirectional":
        assert measured.facts["synchronization"] == "pscw"


@pytest.mark.parametrize(
    ("operation", "values", "problem"),
    [
        ("latencies", {}, "has the operation 'latencies', .* does not know: choose one of latency"),
        ("latency", {"ranks": 3}, "latency on 3 ranks: use 2 or more, a multiple of 2"),
        ("barrier", {"ranks": 0}, "barrier on 0 ranks: use 1 or more"),
        ("barrier", {"sizes": (8,)}, "has sizes, but barrier .* has none: leave out sizes"),
        ("put", {"sizes": (0, 8)}, "has a size that put cannot have: sizes are from 1"),
        ("latency", {"sizes": (8, 8)}, "has 2 sizes, 1 of them different: .* each once"),
        ("latency", {"sizes": tuple(range(65))}, "has 65 sizes, .* at most 64"),
        ("latency", {"sizes": (1 << 31,)}, "has a size that latency cannot have"),
        ("allreduce", {"sizes": (12,)}, "not a multiple of 8 bytes: allreduce adds numbers"),
        ("latency", {"samples": 0}, "asks for 0 samples in 0.2 s"),
        ("latency", {"seconds": float("nan")}, "samples in nan s"),
        ("latency", {"options": {"window": 4}}, "has the option window, but latency has none"),
        ("bandwidth", {"options": {"window": 0}}, "has window: 0: write a whole number from 1"),
        ("bandwidth", {"options": {"window": True}}, "has window: True: write a whole number"),
        ("bandwidth", {"options": {"windows": 4}}, "an option windows, .* its options are window,"),
        ("put-bidirectional", {"options": {"synchronization": "lock"}}, "choose one of pscw, f"),
        ("bcast", {"options": {"synchronization": "lock"}}, "the option synchronization, but bcas"),
        ("latency", {"options": {"clock": "sun"}}, "has clock: 'sun': choose one of auto, counter"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(
    operation: str, values: dict[str, Any], problem: str
) -> None:
    asked = workload("record", operation, **values)
    with pytest.raises(VicinalError, match=rf"the workload a-{operation} .*{problem}"):
        Record().program(asked, Mpi.MPICH, TOOLS)


def test_a_missing_mpi_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_MPICH", "/nowhere")
    assert "there is no MPICH in /nowhere" in (Record().missing(LATENCY, Mpi.MPICH, TOOLS) or "")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (
            workload("record", "bandwidth", sizes=(8, 65536)),
            "measured latency instead of bandwidth",
        ),
        (workload("record", "latency", sizes=(8, 65536), ranks=4), "measured 2 ranks instead of 4"),
        (workload("record", "latency", sizes=(8,)), "other sizes or ranks than were asked for"),
        (workload("record", "latency", sizes=(65536, 8)), "other sizes or ranks than were asked"),
    ],
)
def test_the_answer_to_another_question_is_refused(asked: Any, problem: str) -> None:
    with pytest.raises(VicinalError, match=problem):
        Record().read(asked, recorded("latency-mpich.txt"))


def test_sizes_may_be_left_to_the_program() -> None:
    measured = Record().read(workload("record", "latency"), recorded("latency-mpich.txt"))
    assert [each.size for each in measured.series] == [8, 65536]


def resealed(lines: list[str]) -> str:
    """Lines as a deceiving program would print them: with a matching checksum."""
    body = "".join(f"{line}\n" for line in lines[2:])
    end = {"end": True, "lines": len(lines) - 2, "crc32": zlib.crc32(body.encode())}
    return "\n".join([*lines, json.dumps(end)]) + "\n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_value_of_another_kind_is_refused_or_can_be_true(data: st.DataObject) -> None:
    """This holds even with a matching checksum: accepted values can be kept in a result."""
    lines = recorded("latency-mpich.txt").splitlines()[:-1]
    at = data.draw(st.integers(0, len(lines) - 1))
    record = json.loads(lines[at])
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(JSON)
    lines[at] = json.dumps(record)
    try:
        measured = Record().read(LATENCY, resealed(lines))
    except VicinalError:
        return
    json.dumps(measured.facts, allow_nan=False)
    for series in measured.series:
        assert series.nanoseconds.dtype == np.int64
        assert series.nanoseconds.min() >= 0
        assert 1 <= series.messages < 2**31


def test_deep_nesting_is_refused() -> None:
    lines = recorded("latency-mpich.txt").splitlines()[:-1]
    lines[1] = '{"format": ' + "[" * 100_000
    with pytest.raises(VicinalError, match="cannot be read"):
        Record().read(LATENCY, resealed(lines))
