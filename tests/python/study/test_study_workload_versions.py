"""Output of several versions of each program gives the same figures: corpus/README.md."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_support import figures, read, same, workload

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Tools
from vicinal.mpi.libraries import Mpi

CORPUS = Path(__file__).with_name("corpus")
MIB = (1 << 20) / 1e6
Figures = dict[tuple[str, int | None, str], Any]
"""Values, or the expected ones, by name, size and unit."""

WRITES = workload("perftest", "write-bandwidth", sizes=(4096, 65536), samples=200)
LATENCY = workload("osu", "latency", sizes=(1, 2, 4))
BANDWIDTH = workload("osu", "bandwidth", sizes=(1, 4))
LJ = workload("lammps", "lj", options={"steps": 50, "cells": 8})
PING_PONG = workload("libfabric", "latency", sizes=(64, 65536), samples=100)
IMB_ALLREDUCE = workload("imb", "allreduce", sizes=(8, 4096))
FT = workload("npb", "FT", options={"class": "A"})
BFS = workload("graph500", "bfs")
TCP_RATE = workload("sockets", "bandwidth", sizes=(65536,))
SENDS = workload("perftest", "send-bandwidth", sizes=(65536,), samples=200)
RATES: Figures = {
    ("mean", 4096, "MB/s"): pytest.approx(2000 * MIB),
    ("mean", 4096, "M/s"): 0.512,
    ("mean", 65536, "MB/s"): pytest.approx(9000 * MIB),
    ("mean", 65536, "M/s"): 0.144,
}
LJ_PARTS: Figures = {
    ("time", None, "s"): 0.5,
    ("pair forces", None, "s"): 0.3,
    ("neighbour lists", None, "s"): 0.05,
    ("communication", None, "s"): 0.1,
    ("output", None, "s"): 0.02,
    ("integration", None, "s"): 0.02,
    ("other", None, "s"): 0.01,
}
SEARCHES: Figures = {("mean", None, "s"): 0.0105, ("harmonic mean", None, "TEPS"): 9.97143e07}
OSU_RATES: Figures = {("mean", 1, "MB/s"): 2.5, ("mean", 4, "MB/s"): 10.25}

FIGURES: list[tuple[Workload, str, Figures]] = [
    (WRITES, "perftest-4.4-write-bandwidth.txt", RATES),
    (WRITES, "perftest-24.04-write-bandwidth.txt", RATES),
    (
        SENDS,
        "perftest-24.07-send-bandwidth-gbits.txt",
        {("mean", 65536, "MB/s"): pytest.approx(12312.5), ("mean", 65536, "M/s"): 0.187874},
    ),
    (BANDWIDTH, "osu-5.6.3-bandwidth.txt", OSU_RATES),
    (BANDWIDTH, "osu-7.5-bandwidth-validation.txt", OSU_RATES),
    (
        LATENCY,
        "osu-7.4-latency-validation.txt",
        {("mean", 1, "µs"): 1.61, ("mean", 2, "µs"): 1.62, ("mean", 4, "µs"): 1.64},
    ),
    (
        workload("osu", "allreduce", sizes=(4, 8)),
        "osu-7.5-allreduce-full-validation.txt",
        {("mean", 4, "µs"): 3.11, ("mean", 8, "µs"): 3.15},
    ),
    (
        workload("osu", "multi-latency", ranks=4, sizes=(2,)),
        "osu-7.4-multi-latency-percentiles.txt",
        {
            ("mean", 2, "µs"): 2.12,
            ("median", 2, "µs"): 2.06,
            ("P90", 2, "µs"): 2.31,
            ("P99", 2, "µs"): 4.95,
        },
    ),
    (workload("osu", "barrier"), "osu-7.4-barrier.txt", {("mean", None, "µs"): 2.41}),
    (LJ, "lammps-2018-08-22.txt", LJ_PARTS),
    (LJ, "lammps-2022-06-23.txt", LJ_PARTS),
    (
        LJ,
        "lammps-2024-08-29-timer-full.txt",
        {key: pytest.approx(value / 10) for key, value in LJ_PARTS.items()},
    ),
    (
        PING_PONG,
        "fi_pingpong-1.22.txt",
        {
            ("mean", 64, "µs"): 2.0,
            ("mean", 64, "MB/s"): 32.0,
            ("mean", 65536, "µs"): 8.0,
            ("mean", 65536, "MB/s"): 8192.0,
        },
    ),
    (TCP_RATE, "iperf-3.1.3.txt", {("mean", 65536, "MB/s"): 1200.0}),
    (TCP_RATE, "iperf-3.17.txt", {("mean", 65536, "MB/s"): 1200.0}),
    (
        workload("imb", "latency", sizes=(8, 4096)),
        "imb-2021.2-pingpong.txt",
        {("mean", 8, "µs"): 1.6, ("mean", 4096, "µs"): 2.05},
    ),
    (
        IMB_ALLREDUCE,
        "imb-2019.6-allreduce-check.txt",
        {("mean", 8, "µs"): 1.69, ("mean", 4096, "µs"): 4.7},
    ),
    (FT, "npb-3.3.1-ft.txt", {("time", None, "s"): 2.5, ("rate", None, "Mop/s"): 2854.8}),
    (
        workload("hpcc", "HPL"),
        "hpcc-1.4.1.txt",
        {("HPL", None, "GFLOPS"): pytest.approx(1.66967), ("time", None, "s"): 0.4},
    ),
    (BFS, "graph500-2.1.4.txt", SEARCHES),
    (BFS, "graph500-3.0-sssp.txt", SEARCHES),
]
SERIES: list[tuple[Workload, str, list[tuple[int, list[int]]]]] = [
    (
        workload("perftest", "write-latency", sizes=(64,), samples=10),
        "perftest-2.4-write-latency.txt",
        [(64, [1520, 1490, 1500, 1610, 1480, 1500, 1500, 1550, 2900])],
    ),
    (
        workload("perftest", "send-latency", sizes=(8,), samples=10),
        "perftest-24.04-send-latency.txt",
        [(8, [1520, 1490, 1500, 1610, 1480, 1500, 1500, 1550, 2900])],
    ),
    *(
        (workload("sockets", "latency", sizes=(64,)), name, [(64, [30000, 32000, 31500])])
        for name in ("sockperf-3.7-latency.txt", "sockperf-3.10-full-rtt.txt")
    ),
]
REFUSED: list[tuple[Workload, str, str]] = [
    (
        LATENCY,
        "osu-7.4-latency-fail.txt",
        "osu_latency received other data than were sent: its own validation failed at 2 bytes; "
        "the line is '2                       1.62              Fail': use no value",
    ),
    (
        BANDWIDTH,
        "osu-7.4-bandwidth-error.txt",
        "its own validation failed; the line is "
        "'DATA VALIDATION ERROR: osu_bw exited with status 1",
    ),
    (
        IMB_ALLREDUCE,
        "imb-2019.6-allreduce-defects.txt",
        "IMB received other data than were sent: its own validation failed at 4096 bytes",
    ),
    (
        IMB_ALLREDUCE,
        "imb-2019.6-allreduce-timeout.txt",
        "it skipped 4096 bytes; the line is '4096 time-out.; Time limit",
    ),
    (
        FT,
        "npb-3.4.3-ft-unverified.txt",
        "its own verification did not succeed; the line is 'Verification = UNSUCCESSFUL'",
    ),
]
"""Complete files that the driver must refuse, with the error's text."""
FACTS: dict[str, dict[str, object]] = {
    "perftest-24.07-send-bandwidth-gbits.txt": {"version": "6.23", "device": "mlx5_0"},
    "perftest-24.04-send-latency.txt": {"device": "mlx5_0", "link_type": "IB"},
    "lammps-2022-06-23.txt": {
        "version": "23 Jun 2022 - Update 4",
        "program": "LAMMPS (23 Jun 2022 - Update 4)",
        "atoms": 2048,
    },
    "sockperf-3.7-latency.txt": {"version": "3.7-no.git"},
    "sockperf-3.10-full-rtt.txt": {"version": "3.10-31.git01234567"},
    "iperf-3.17.txt": {"version": "3.17.1"},
    "imb-2021.2-pingpong.txt": {"version": "2021.2", "validated": None},
    "imb-2019.6-allreduce-check.txt": {"version": "2019 Update 6", "validated": True},
    "npb-3.3.1-ft.txt": {"version": "3.3.1", "program": "NPB 3.3.1"},
    "hpcc-1.4.1.txt": {"version": "1.4.1", "program": "hpcc"},
    "graph500-2.1.4.txt": {"validated": True},
    "osu-5.6.3-bandwidth.txt": {"version": "5.6.3", "validated": None},
    "osu-7.5-bandwidth-validation.txt": {
        "version": "7.5",
        "validated": True,
        "program": "OSU MPI Bandwidth Test v7.5",
    },
}
"""Facts about the program that its output states, above all its version."""
READ = [(asked, name) for asked, name, _ in FIGURES] + [(asked, name) for asked, name, _ in SERIES]


def corpus(name: str) -> str:
    """The complete standard output in a file of the corpus."""
    return (CORPUS / name).read_text()


def test_every_file_of_the_corpus_is_read_and_described() -> None:
    described = (CORPUS / "README.md").read_text()
    used = {name for _, name in READ} | {name for _, name, _ in REFUSED}
    assert used == {each.name for each in CORPUS.glob("*.txt")}
    assert [name for name in sorted(used) if f"`{name}`" not in described] == []


@pytest.mark.parametrize(("asked", "name", "expected"), FIGURES)
def test_figures_of_each_version(asked: Workload, name: str, expected: Figures) -> None:
    assert figures(read(asked, corpus(name))) == expected


@pytest.mark.parametrize(("asked", "name", "expected"), SERIES)
def test_samples_of_each_version(
    asked: Workload, name: str, expected: list[tuple[int, list[int]]]
) -> None:
    found = read(asked, corpus(name)).series
    assert [(each.size, each.nanoseconds.tolist()) for each in found] == expected


@pytest.mark.parametrize(("asked", "name"), [each for each in READ if each[1] in FACTS])
def test_what_the_output_says_of_the_program_is_recorded(asked: Workload, name: str) -> None:
    facts = read(asked, corpus(name)).facts
    assert {key: facts.get(key) for key in FACTS[name]} == FACTS[name]


@pytest.mark.parametrize(("asked", "name"), READ)
def test_lines_of_other_programs_change_nothing(asked: Workload, name: str) -> None:
    """The lines come after the first line of each size, if there is one, and at the end."""
    whole = corpus(name)
    noise = "libfabric:7:core: a warning\n    of two lines\n[node1:77] 2 more were left out\n"
    begin, line, rest = whole.partition("\n")
    told = (
        f"{begin}{line}{noise}{rest}{noise}" if begin.startswith("===") else noise + whole + noise
    )
    assert same(read(asked, told), read(asked, whole))


@pytest.mark.parametrize(("asked", "name"), READ)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_output_that_was_cut_gives_all_or_nothing(
    asked: Workload, name: str, data: st.DataObject
) -> None:
    whole = corpus(name)
    at = data.draw(st.integers(0, len(whole) - 1))
    try:
        measured = read(asked, whole[:at])
    except VicinalError:
        return
    assert same(measured, read(asked, whole))


def refusal(asked: Workload, text: str) -> str:
    """The error's whole text."""
    with pytest.raises(VicinalError) as caught:
        read(asked, text)
    return str(caught.value)


def test_validation_is_a_switch_of_osu(tmp_path: Path) -> None:
    (tmp_path / "osu_bw").write_text("#!/bin/sh\n")
    (tmp_path / "osu_bw").chmod(0o755)
    asked = workload("osu", "bandwidth", sizes=(8,), options={"validation": True})
    program = drivers()["osu"].program(asked, Mpi.MPICH, Tools({"osu": tmp_path}))
    assert list(program.command[-3:]) == ["-m", "8:8", "-c"]


@pytest.mark.parametrize(("asked", "name", "problem"), REFUSED)
def test_a_failure_that_the_program_reports_is_a_failed_trial_with_words(
    asked: Workload, name: str, problem: str
) -> None:
    assert problem in refusal(asked, corpus(name))


@pytest.mark.parametrize(
    ("asked", "name", "old", "new", "parts"),
    [
        (
            LATENCY,
            "osu-7.4-latency-validation.txt",
            "Latency(us) ",
            "Latency(days) ",
            ["its Avg Latency is in 'days'", "the line is '# Size       Avg L", "expected a time"],
        ),
        (
            LATENCY,
            "osu-7.4-latency-validation.txt",
            "Avg Latency(us) ",
            "Half Latency(us) ",
            [
                "its columns 0 times",
                "the line is '# Size       Half Latency(us)",
                "one line of known",
            ],
        ),
        (
            LATENCY,
            "osu-7.4-latency-validation.txt",
            "1.62              Pass",
            "1.62              Maybe",
            ["its validation is 'Maybe'", "the line is '2  ", "expected Pass or Fail"],
        ),
        (
            LATENCY,
            "osu-7.4-latency-validation.txt",
            "1.62              Pass",
            "1.62",
            ["a line of 3 columns has 2", "the line is '2                       1.62'"],
        ),
        (
            LJ,
            "lammps-2022-06-23.txt",
            "100.000 timesteps/s, 204.800 katom-step/s",
            "100.000 hops/s",
            ["rate is not in timesteps a second", "100.000 hops/s'", "or in atom-step/s after"],
        ),
        (
            LJ,
            "lammps-2022-06-23.txt",
            "204.800 katom-step/s",
            "204.800 Matom-step/s",
            ["its time and rate do not agree (0.2048 and 204.8 Matom-step/s)"],
        ),
        (
            LJ,
            "lammps-2022-06-23.txt",
            "on 2 procs for",
            "on 2 nodes for",
            [
                "its time has an unknown form",
                "the line is 'Loop time of 0.5 on 2 nodes",
                "RANKS procs",
            ],
        ),
        (
            LJ,
            "lammps-2024-08-29-timer-full.txt",
            "avg time",
            "mid time",
            [
                "has no head",
                "the line is 'Section |  min time  |  mid time",
                "expected columns Sec",
            ],
        ),
        (
            PING_PONG,
            "fi_pingpong-1.22.txt",
            "usec/xfer",
            "cycles/xfer",
            ["its table lacks a column", "cycles/xfer   Mxfers/sec'", "a time, as usec/xfer"],
        ),
        (
            workload("sockets", "latency", sizes=(64,)),
            "sockperf-3.7-latency.txt",
            "latency(usec)",
            "latency(days)",
            ["its log has unknown columns", "the line is 'packet, txTime", "with units of time"],
        ),
        (
            workload("imb", "latency", sizes=(8, 4096)),
            "imb-2021.2-pingpong.txt",
            "t[usec]",
            "t[cycles]",
            [
                "it prints no values; the line is '#bytes",
                "t[cycles]",
                "expected a column t[usec], t_avg",
            ],
        ),
        (
            FT,
            "npb-3.3.1-ft.txt",
            "Mop/s total",
            "Mop/s whole",
            ["it prints no Mop/s total", "expected a line 'Mop/s total = VALUE'"],
        ),
        (
            workload("hpcc", "HPL"),
            "hpcc-1.4.1.txt",
            "HPL_Tflops",
            "HPL_Pflops",
            [
                "it prints HPL_Tflops 0 times",
                "expected one line 'HPL_Tflops=VALUE' in its summary",
            ],
        ),
        (
            BFS,
            "graph500-2.1.4.txt",
            "mean_time",
            "mid_time",
            ["it prints bfs mean_time 0 times", "expected one line 'bfs mean_time: VALUE'"],
        ),
        (
            TCP_RATE,
            "iperf-3.17.txt",
            '"sum_received"',
            '"sum_got"',
            [
                "not the JSON that iperf3 prints (KeyError: 'sum_received')",
                "bits_per_second in end.sum_rec",
            ],
        ),
        (
            TCP_RATE,
            "iperf-3.17.txt",
            '"intervals":',
            '"intervals"=',
            [
                "not the JSON that iperf3 prints (JSONDecodeError",
                """the line is '"intervals"=\\t[],'""",
            ],
        ),
        (
            WRITES,
            "perftest-24.04-write-bandwidth.txt",
            "average[MiB/sec]",
            "average[qubits]",
            [
                "bandwidth is not in MB a second",
                "the line is '#bytes",
                "average[qubits]",
                "MiB/sec or",
            ],
        ),
        (
            WRITES,
            "perftest-24.04-write-bandwidth.txt",
            "BW average[MiB/sec]",
            "BW average",
            [
                "columns of unknown form",
                "the line is '#bytes     #iterations    BW peak",
                "expected",
            ],
        ),
        (
            SERIES[1][0],
            "perftest-24.04-send-latency.txt",
            "#, usec",
            "#, cycles",
            ["its times are in 'cycles'", "the line is '#, cycles'", "expected a time, as usec"],
        ),
    ],
)
def test_what_cannot_be_read_is_quoted_with_what_was_expected_and_a_remedy(
    asked: Workload, name: str, old: str, new: str, parts: list[str]
) -> None:
    text = corpus(name)
    assert old in text
    message = refusal(asked, text.replace(old, new))
    assert [part for part in parts if part not in message] == []
    assert "read the output of the trial" in message
