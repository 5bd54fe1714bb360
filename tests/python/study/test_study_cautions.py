"""Warnings that readers of a study get before its figures, and the memory of large results."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_results import (
    BCAST,
    HPL,
    NATIVE,
    REGION,
    SMALL,
    Drawn,
    SimulatedHost,
    in_memory,
    trials_of,
    write_result,
)

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.describe import distribution
from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.analysis.summary import Summary
from vicinal.labs.study.analysis.values import samples_of
from vicinal.labs.study.file.model import Adaptation, Published, Quantity, Workload
from vicinal.labs.study.result.layout import Figure, ProgramFact
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.result.samples import Series

HERE = Path(__file__).parent
CONDITIONS = dict(SimulatedHost().conditions)
PROGRAM = dict(SimulatedHost().program)


def only(summary: Summary, *words: str) -> str:
    """The only warning that has all of these words."""
    (found,) = (text for text in summary.warnings if all(word in text for word in words))
    return found


def test_a_result_without_fault_has_no_warning() -> None:
    assert summarise(in_memory(SMALL)).warnings == ()


def with_conditions(**values: Any) -> SimulatedHost:
    return SimulatedHost(conditions=CONDITIONS | values)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (
            with_conditions(emulated=True),
            ("QEMU emulates the processors of containers-region and native",),
        ),
        (with_conditions(steal=0.031), ("up to 3 % of processor time", "in 27 trials more than")),
        (with_conditions(load=11.5), ("load was up to 11.5 with 8 threads", "before 27 trials")),
        (
            SimulatedHost(program=PROGRAM | {ProgramFact.RECORDING: 40.0}),
            ("recording took more than 5 % of a sample in 4 cells", "it is not subtracted"),
        ),
    ],
    ids=["emulated", "stolen", "busy", "recording"],
)
def test_what_disturbed_is_said(host: SimulatedHost, words: tuple[str, ...]) -> None:
    assert only(summarise(in_memory(SMALL, host=host)), *words)


def test_samples_that_hang_together_are_said() -> None:
    def slow_then_fast(drawn: Drawn) -> Drawn:
        trial, series = drawn
        waves = 1 + (np.arange(500) // 50 % 2)
        return trial, [
            replace(each, nanoseconds=(each.nanoseconds * waves).astype(np.int64))
            for each in series
        ]

    drawn = [slow_then_fast(each) for each in trials_of(SMALL)]
    assert only(
        summarise(in_memory(SMALL, drawn=drawn)), "neighbouring samples", "in 4 cells", "0.9"
    )


def test_failed_trials_are_said_and_their_cells_shown(tmp_path: Path) -> None:
    study = replace(SMALL, workloads=(*SMALL.workloads, replace(BCAST, sizes=(8, 128))))
    failing = {(REGION.name, "bcast"): "it printed garbage"}
    result = write_result(tmp_path / "result", study, failing=failing)
    summary = summarise(result)
    assert only(summary, "9 trials of containers-region, bcast failed: it printed garbage")
    cells = [
        cell
        for cell in summary.cells
        if (cell.environment, cell.workload) == (REGION.name, "bcast")
    ]
    assert [cell.size for cell in cells] == [8, 128]
    for cell in cells:
        assert (cell.trials, len(cell.failures), cell.across) == (0, 9, {})
    assert not any(each.workload == "bcast" for each in summary.compared)


def test_a_damaged_trial_costs_itself_alone(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "result", SMALL).folder
    (folder / "samples/000002.parquet").write_bytes(b"")
    (folder / "trials/000005.json").unlink()
    summary = summarise(open_result(folder))
    assert only(summary, "000002.parquet is damaged")
    assert only(summary, "000005.json is missing")
    assert summary.compared


def test_an_interrupted_study_says_how_far_it_came() -> None:
    drawn = [each for each in trials_of(SMALL) if each[0].block < 7]
    summary = summarise(in_memory(SMALL, drawn=drawn))
    assert only(summary, "7 of 9 blocks were measured: --resume measures the others")
    assert only(summary, "2 cells of the A/A control had too few blocks")


def test_a_study_without_control_says_so() -> None:
    study = replace(SMALL, design=replace(SMALL.design, control=None))
    summary = summarise(in_memory(study, drawn=list(trials_of(study))))
    assert summary.control is None
    assert only(summary, "no environment was measured twice")


def test_what_has_no_ratio_is_not_compared() -> None:
    """A clock that is too coarse gives times of zero."""

    def coarse(drawn: Drawn) -> Drawn:
        return drawn[0], [replace(each, nanoseconds=each.nanoseconds * 0) for each in drawn[1]]

    drawn = [coarse(each) for each in trials_of(SMALL)]
    summary = summarise(in_memory(SMALL, drawn=drawn))
    assert summary.compared == ()
    assert len(summary.cells) == 4


def test_a_rate_of_no_time_is_a_failed_trial() -> None:
    rates = replace(SMALL.workloads[0], operation="bandwidth", quantity=Quantity.BANDWIDTH)
    study = replace(SMALL, workloads=(rates,))

    def coarse(drawn: Drawn) -> Drawn:
        return drawn[0], [replace(each, nanoseconds=each.nanoseconds * 0) for each in drawn[1]]

    drawn = [coarse(each) for each in trials_of(study)]
    assert any(
        "failed: a sample took no time" in text
        for text in summarise(in_memory(study, drawn=drawn)).warnings
    )


def test_a_figure_that_is_no_number_is_a_failed_trial() -> None:
    study = replace(SMALL, workloads=(HPL,))

    def garbage(drawn: Drawn) -> Drawn:
        trial, series = drawn
        if trial.block != 3:
            return drawn
        return replace(trial, figures=(Figure("GFLOPS", float("nan"), "GFLOPS"),)), series

    summary = summarise(in_memory(study, drawn=[garbage(each) for each in trials_of(study)]))
    assert {cell.trials for cell in summary.cells} == {8}
    assert only(summary, "1 trial of native, hpl failed: it gave no performance")


def test_a_manifest_without_its_study_is_refused() -> None:
    result = in_memory(SMALL)
    result.manifest["study"] = {"name": "small"}
    with pytest.raises(VicinalError):
        summarise(result)


# Published figures


def figure(**values: Any) -> Published:
    given: dict[str, Any] = {"size": 8, "environment": NATIVE.name} | values
    return Published("P9", "latency", Quantity.LATENCY, 1.0, given.pop("unit", "µs"), **given)


def test_units_of_papers_are_converted() -> None:
    study = replace(SMALL, published=(figure(), figure(unit="ns"), figure(unit="MB/s")))
    micro, nano, wrong = summarise(in_memory(study)).published
    assert micro.measured is not None
    assert nano.measured is not None
    assert nano.measured.value == pytest.approx(1000 * micro.measured.value)
    assert wrong.why_not == "it was measured in µs, but published in MB/s"


@pytest.mark.parametrize(("value", "size"), [(0.5, 64), (1.5, 8)])
def test_a_ratio_of_no_size_is_that_furthest_in_its_direction(value: float, size: int) -> None:
    """Papers say "the best size" or "up to": here 8 B cost 1.4 times as much, and 64 B 0.7."""

    def changed(drawn: Drawn) -> Drawn:
        trial, series = drawn
        factors = {8: 1.4, 64: 0.7} if trial.environment == REGION.name else {8: 1.0, 64: 1.0}
        return trial, [
            replace(each, nanoseconds=(each.nanoseconds * factors[each.size]).astype(np.int64))
            for each in series
        ]

    both = (NATIVE.name, REGION.name)
    ratio = figure(environment=None, comparison=both, unit="ratio", size=None)
    study = replace(SMALL, published=(replace(ratio, value=value),))
    costs = dict.fromkeys(both, 1.0)
    drawn = [changed(each) for each in trials_of(study, costs=costs)]
    (comparison,) = summarise(in_memory(study, drawn=drawn)).published
    assert comparison.measured is not None
    assert comparison.at == size
    assert comparison.measured.value == pytest.approx({8: 1.4, 64: 0.7}[size], rel=0.05)


def test_what_was_measured_in_another_place_is_marked() -> None:
    stand_in = replace(REGION, name="nearby", stands_for=REGION.name)
    study = replace(
        SMALL,
        environments=(NATIVE, REGION, stand_in),
        unavailable={REGION.name: "no card with VFs"},
        published=(figure(environment=REGION.name), figure()),
    )
    costs = {NATIVE.name: 1.0, stand_in.name: 2.0}
    measured, own = summarise(in_memory(study, costs=costs)).published
    assert measured.measured is not None
    assert measured.adapted
    assert measured.published.environment == REGION.name
    assert not own.adapted


@pytest.mark.parametrize(
    ("what", "adapted"),
    [
        ("workload latency: 2 ranks instead of 4", True),
        ("workload bcast: 2 ranks instead of 4", False),
        ("environment native: 2 nodes instead of 4", True),
        ("trials: 9 instead of 15", True),
    ],
)
def test_adaptations_concern_what_they_name(what: str, adapted: bool) -> None:
    study = replace(SMALL, published=(figure(),), adaptations=(Adaptation(what, "a rule"),))
    (comparison,) = summarise(in_memory(study)).published
    assert comparison.adapted is adapted


# Values


def test_pairs_side_by_side_have_the_rate_of_all_their_work() -> None:
    """Two pairs that take 1 and 3 µs in turn move a message of 8 B in 2 µs each: 8 MB/s."""
    workload = Workload("bw", "bw", "record", "bandwidth", Quantity.BANDWIDTH, (8,), ranks=4)
    turns = np.tile([1000, 3000], 50)
    samples = samples_of([Series(8, 0, 1, turns), Series(8, 1, 1, turns[::-1])], workload)
    assert samples.mean == pytest.approx(8.0)
    assert samples.values == pytest.approx(np.full(100, 8 + 8 / 3))


def test_a_collective_takes_as_long_as_its_slowest_rank() -> None:
    workload = Workload("b", "b", "record", "bcast", Quantity.LATENCY, (8,), ranks=2)
    samples = samples_of(
        [Series(8, 0, 1, np.array([1000, 5000])), Series(8, 1, 1, np.array([3000, 2000]))], workload
    )
    assert samples.values.tolist() == [3.0, 5.0]


def test_pairs_of_different_lengths_have_no_common_rate() -> None:
    workload = Workload("bw", "bw", "record", "bandwidth", Quantity.BANDWIDTH, (8,), ranks=4)
    with pytest.raises(VicinalError, match="different numbers of samples"):
        samples_of([Series(8, 0, 1, np.array([1])), Series(8, 1, 1, np.array([1, 2]))], workload)


@pytest.mark.parametrize("count", [1, 2, 299, 300, 301, 100_000])
def test_a_distribution_is_thinned_and_keeps_its_tail(count: int) -> None:
    values = np.random.default_rng(1).permutation(np.arange(1.0, count + 1))
    points = distribution(values)
    assert len(points) <= 300
    for part, value in points:
        assert part == pytest.approx(value / count)  # this share of values does not exceed it
    assert points[-1] == (1.0, float(count))
    assert points[0][1] == 1.0
    if count == 100_000:
        assert sum(part > 0.999 for part, _ in points) > 30
    with pytest.raises(ValueError, match="3 points"):
        distribution(values, 3)


# Size


@pytest.mark.long
def test_ten_million_samples_need_less_than_a_gibibyte(tmp_path: Path) -> None:
    """A separate process. docs/explanation/statistics.md states how long it takes."""
    command = [sys.executable, str(HERE / "summary_large.py")]
    folder = str(tmp_path / "large")
    subprocess.run([*command, "write", folder, "1"], check=True)
    done = subprocess.run(
        [*command, "summarise", folder], check=True, capture_output=True, text=True
    )
    measured = json.loads(done.stdout)
    print(measured)
    assert measured["samples"] == 10_000_000
    assert measured["memory_bytes"] < 1 << 30
