"""Drivers of programs that Debian packages, on output that these programs really printed.

recorded/README.md says which versions, and how they ran. If a program is installed, the tests also
run it.
"""

import os
import random
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_support import figures, read, recorded, same, stand_in, workload

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.labs.study.file.model import Quantity, Workload
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Program, Tools
from vicinal.labs.study.workloads.hpcc import hpcc_input
from vicinal.labs.study.workloads.lammps import chains
from vicinal.launch.running import launch
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Mpi

TOOLS = Tools()
HPCC = workload("hpcc", "HPL", quantity=Quantity.PERFORMANCE)
LJ = workload("lammps", "lj", quantity=Quantity.TIME, options={"steps": 50, "cells": 8})
CHAIN = workload("lammps", "chain", quantity=Quantity.TIME, options={"steps": 50, "cells": 12})
ROUND_TRIPS = workload("sockets", "latency", sizes=(64, 1400))
RATE = workload("sockets", "bandwidth", quantity=Quantity.BANDWIDTH, sizes=(65536, 131072))
PING_PONG = workload("libfabric", "latency", sizes=(64, 1500, 65536), samples=100)

RECORDINGS = [
    (HPCC, "hpcc-2.txt"),
    (LJ, "lammps-lj-2.txt"),
    (CHAIN, "lammps-chain-2.txt"),
    (ROUND_TRIPS, "sockperf.txt"),
    (RATE, "iperf3.txt"),
    (PING_PONG, "fi_pingpong.txt"),
]


def test_hpl_gives_its_rate_and_time() -> None:
    assert figures(read(HPCC, recorded("hpcc-2.txt"))) == {
        ("HPL", None, "GFLOPS"): pytest.approx(0.250644),
        ("time", None, "s"): 0.333973,
    }


@pytest.mark.parametrize(
    ("operation", "unit"), [("FFT", "GFLOPS"), ("RandomAccess", "GUP/s"), ("PTRANS", "GB/s")]
)
def test_other_parts_of_hpcc_come_first_where_they_are_asked_for(operation: str, unit: str) -> None:
    asked = workload("hpcc", operation, quantity=Quantity.PERFORMANCE)
    first, time = read(asked, recorded("hpcc-2.txt")).figures
    assert (first.name, first.unit) == (operation, unit)
    assert (time.name, time.unit) == ("time", "s")
    assert first.value > 0
    assert time.value > 0


def test_the_time_of_lammps_has_its_parts() -> None:
    parts = figures(read(CHAIN, recorded("lammps-chain-2.txt")))
    names = [name for name, _, _ in parts]
    assert names[0] == "time"
    assert set(names) >= {"communication", "bond forces", "pair forces", "other"}
    total = parts.pop(("time", None, "s"))
    assert sum(parts.values()) == pytest.approx(total, rel=0.01)


def test_round_trips_are_samples() -> None:
    measured = read(ROUND_TRIPS, recorded("sockperf.txt"))
    assert measured.figures == ()
    assert [(series.size, series.messages) for series in measured.series] == [(64, 2), (1400, 2)]
    for series in measured.series:
        assert series.nanoseconds.dtype == np.int64
        assert series.nanoseconds.min() > 10_000
        assert len(series.nanoseconds) > 20
    # The same as in the first packet's line, in half microseconds.
    assert "\n0, " in recorded("sockperf.txt")
    first = recorded("sockperf.txt").split("\n0, ")[1].split("\n")[0].split(", ")[2]
    assert measured.series[0].nanoseconds[0] == pytest.approx(2000 * float(first), abs=3)


def test_no_more_samples_are_kept_than_asked_for() -> None:
    asked = workload("sockets", "latency", sizes=(64, 1400), samples=5)
    assert {len(each.nanoseconds) for each in read(asked, recorded("sockperf.txt")).series} == {5}


def test_means_are_figures_and_called_so() -> None:
    rates = figures(read(RATE, recorded("iperf3.txt")))
    assert [(name, size, unit) for name, size, unit in rates] == [
        ("mean", 65536, "MB/s"),
        ("mean", 131072, "MB/s"),
    ]
    found = read(PING_PONG, recorded("fi_pingpong.txt")).figures
    assert [(each.name, each.size, each.unit) for each in found[:2]] == [
        ("mean", 64, "µs"),
        ("mean", 64, "MB/s"),
    ]


# Wrong output


@pytest.mark.parametrize(("asked", "name"), RECORDINGS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_output_that_was_cut_gives_all_or_nothing(
    asked: Workload, name: str, data: st.DataObject
) -> None:
    whole = recorded(name)
    at = data.draw(st.integers(0, len(whole) - 1))
    try:
        measured = read(asked, whole[:at])
    except VicinalError:
        return
    assert same(measured, read(asked, whole))


@pytest.mark.parametrize(("asked", "name"), RECORDINGS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_output_with_a_wrong_character_is_an_error_or_can_be_true(
    asked: Workload, name: str, data: st.DataObject
) -> None:
    """A digit may be a different one; nothing else may become a figure."""
    whole = recorded(name)
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.sampled_from('0123456789.-eE|=\n\x00 {}[]"N') | st.characters())
    try:
        measured = read(asked, whole[:at] + other + whole[at + 1 :])
    except VicinalError:
        return
    for figure in measured.figures:
        assert np.isfinite(figure.value)
        assert figure.value >= 0
    for series in measured.series:
        assert series.nanoseconds.min() >= 0


@pytest.mark.parametrize(("asked", "name"), RECORDINGS)
@given(text=st.text())
def test_garbage_is_refused(asked: Workload, name: str, text: str) -> None:
    del name
    with pytest.raises(VicinalError):
        read(asked, text)


@pytest.mark.parametrize(
    ("asked", "name", "old", "new", "problem"),
    [
        (HPCC, "hpcc-2.txt", "CommWorldProcs=2", "CommWorldProcs=4", "did not run on 2 ranks"),
        (HPCC, "hpcc-2.txt", "\nSuccess=1", "\nSuccess=0", "reports that a test failed"),
        (HPCC, "hpcc-2.txt", "PASSED\n", "FAILED\n", "did not pass its check"),
        (HPCC, "hpcc-2.txt", "HPL_time=0.333", "HPL_time=0.433", "do not agree"),
        (HPCC, "hpcc-2.txt", "HPL_N=500", "HPL_N=5x0", "'5x0' instead of a whole number"),
        (LJ, "lammps-lj-2.txt", "on 2 procs", "on 1 procs", "did not run on 2 ranks"),
        (LJ, "lammps-lj-2.txt", "for 50 steps", "for 60 steps", "ran 60 steps instead of"),
        (LJ, "lammps-lj-2.txt", "Comm    |", "Cxmm    |", "unknown part 'Cxmm'"),
        (LJ, "lammps-lj-2.txt", "Total wall", "Total w", "did not finish"),
        (LJ, "lammps-lj-2.txt", "Loop time of 0.1", "Loop time of 0.2", "do not agree"),
        (LJ, "lammps-lj-2.txt", "LAMMPS (", "ERROR: no\nLAMMPS (", "it reports an error"),
        (ROUND_TRIPS, "sockperf.txt", "=== size 1400", "=== size 64", "began 64 bytes twice"),
        (ROUND_TRIPS, "sockperf.txt", "=== size 1400", "=== size 999", "no value for 1400 bytes"),
        (ROUND_TRIPS, "sockperf.txt", "\n5, ", "\n6, ", "packet 6 is out of order"),
        (
            ROUND_TRIPS,
            "sockperf.txt",
            "ReceivedMessages=",
            "ReceivedMessages:",
            "'' instead of a whole",
        ),
        (RATE, "iperf3.txt", '"start"', '"error": "no way", "start"', "no way"),
        (
            RATE,
            "iperf3.txt",
            '"sum_received"',
            '"sum"',
            r"not the JSON that iperf3 prints \(KeyError",
        ),
        (RATE, "iperf3.txt", '"blksize":\t65536', '"blksize":\t1', "did not write 65536 bytes"),
        (PING_PONG, "fi_pingpong.txt", "=100", "=99", "did not send 100 times 64 bytes"),
    ],
)
def test_what_cannot_be_true_is_named(
    asked: Workload, name: str, old: str, new: str, problem: str
) -> None:
    text = recorded(name)
    assert old in text
    with pytest.raises(VicinalError, match=problem):
        read(asked, text.replace(old, new))


# Requests to programs


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (workload("hpcc", "hpl"), "operation 'hpl', .* choose one of HPL, FFT, Rand"),
        (workload("hpcc", "HPL", sizes=(8,)), "has sizes, but HPL of its driver hpcc has none"),
        (workload("hpcc", "HPL", options={"grid": "2x4"}), "rows x columns of 2 ranks, such as"),
        (workload("hpcc", "HPL", options={"size": 0}), "has size: 0: write a whole number from 1"),
        (workload("lammps", "eam"), "choose one of lj, chain"),
        (workload("lammps", "chain", options={"cells": 10}), "write a multiple of 4 for chains"),
        (workload("sockets", "latency", sizes=(4,)), "use sizes from 14 to 65507 bytes"),
        (workload("sockets", "latency", ranks=4), "latency on 4 ranks: use 2"),
        (workload("libfabric", "latency", options={"provider": "$(ls)"}), "write a name, such"),
        (workload("libfabric", "latency", options={"endpoint": "x"}), "choose one of rdm, msg, d"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(asked: Workload, problem: str) -> None:
    with pytest.raises(VicinalError, match=problem):
        drivers()[asked.driver].program(asked, Mpi.OPENMPI, TOOLS)


@pytest.mark.parametrize(
    ("asked", "package"),
    [
        (HPCC, "hpcc, or name its path with --with-hpcc PATH"),
        (LJ, "lammps, or name its path with --with-lammps PATH"),
        (ROUND_TRIPS, "sockperf"),
        (RATE, "iperf3"),
        (PING_PONG, "libfabric-bin"),
    ],
)
def test_a_program_that_is_missing_is_named_with_its_package(
    asked: Workload, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = drivers()[asked.driver].missing(asked, Mpi.OPENMPI_DEBIAN, TOOLS)
    assert missing is not None
    assert missing.endswith(f"install Debian's package {package}")


def test_a_program_of_another_mpi_is_not_started(tmp_path: Path) -> None:
    tools = Tools({"lammps": stand_in(tmp_path, "lmp", Mpi.MPICH).parent})
    driver = drivers()["lammps"]
    assert driver.missing(LJ, Mpi.MPICH, tools) is None
    missing = driver.missing(LJ, Mpi.OPENMPI, tools)
    assert missing is not None
    assert "lmp is linked with MPICH, but the environment uses Open MPI" in missing
    assert missing.endswith("such as mpi: mpich")


def test_the_input_of_hpcc_is_for_its_grid() -> None:
    program = drivers()["hpcc"].program(
        workload("hpcc", "HPL", ranks=6, options={"size": 777, "broadcast": 3}),
        Mpi.OPENMPI,
        Tools({"hpcc": Path("/bin/true")}),
    )
    lines = [line.split() for line in program.files["hpccinf.txt"].splitlines()]
    values = {words[-1]: words[0] for words in lines if len(words) == 2}
    assert (values["Ns"], values["NBs"], values["Ps"], values["Qs"]) == ("777", "80", "2", "3")
    assert program.files["hpccinf.txt"] == hpcc_input(size=777, block=80, grid=(2, 3), broadcast=3)


def test_chains_go_from_site_to_neighbour() -> None:
    text = chains(sites=4, length=16)
    assert "64 atoms\n60 bonds\n" in text
    rows = [line.split() for line in text.split("Atoms # bond\n\n")[1].split("\n\n")[0].split("\n")]
    coordinates = [np.array(row[3:], dtype=float) for row in rows]
    assert len({tuple(point) for point in coordinates}) == 64
    assert {row[1] for row in rows} == {"1", "2", "3", "4"}
    step = (64 / 0.85) ** (1 / 3) / 4
    for one, other in pairwise(coordinates):
        assert np.abs(one - other).sum() == pytest.approx(step)


# The real programs, if they are installed: the suite `software` installs them


def run_pair(program: Program, directory: Path) -> str:
    """Run server and client on this host, as a study starts them on two nodes."""
    command = [word.replace("{server}", "127.0.0.1") for word in program.command]
    server = subprocess.Popen(program.server, cwd=directory, stdout=subprocess.DEVNULL)
    try:
        done = subprocess.run(
            command, cwd=directory, stdout=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        server.terminate()
        server.wait(timeout=60)
    return done.stdout


def skip_without(asked: Workload, mpi: Mpi) -> None:
    missing = drivers()[asked.driver].missing(asked, mpi, TOOLS)
    if missing is not None:
        pytest.skip(missing)


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        (PING_PONG, {"provider": "tcp;ofi_rxm"}),
        pytest.param(ROUND_TRIPS, {}, marks=pytest.mark.long),
        pytest.param(RATE, {}, marks=pytest.mark.long),
    ],
)
def test_a_pair_of_programs_is_run_and_read(
    asked: Workload, option: dict[str, object], tmp_path: Path
) -> None:
    skip_without(asked, Mpi.MPICH)
    port = random.Random(os.getpid()).randint(20000, 30000)
    again = workload(
        asked.driver,
        asked.operation,
        quantity=asked.quantity,
        sizes=asked.sizes[:2],
        samples=20,
        options={**option, "port": port},
    )
    program = drivers()[again.driver].program(again, Mpi.MPICH, TOOLS)
    measured = read(again, run_pair(program, tmp_path))
    found: list[int | None] = [each.size for each in measured.series or measured.figures]
    assert list(dict.fromkeys(found)) == list(again.sizes)


@pytest.mark.long
@pytest.mark.parametrize(
    "asked",
    [
        workload("hpcc", "RandomAccess", options={"size": 200}),
        workload("lammps", "lj", options={"steps": 20, "cells": 6}),
        workload("lammps", "chain", options={"steps": 20, "cells": 8}),
    ],
)
def test_an_application_is_run_over_a_region_and_read(asked: Workload, tmp_path: Path) -> None:
    skip_without(asked, Mpi.OPENMPI_DEBIAN)
    program = drivers()[asked.driver].program(asked, Mpi.OPENMPI_DEBIAN, TOOLS)
    for name, text in program.files.items():
        (tmp_path / name).write_text(text)
    job = Job(
        program.command,
        program.ranks,
        Mpi.OPENMPI_DEBIAN,
        environment=program.variables,
        directory=tmp_path,
    )
    with EphemeralCluster(nodes=2) as nodes:
        done = launch(job, nodes, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read(asked, done.stdout).figures
