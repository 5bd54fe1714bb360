"""The analysis of studies, from results whose truth is known."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import pytest
from study_results import (
    BANDWIDTH,
    HPL,
    LAMMPS,
    LATENCY,
    NATIVE,
    NETWORK,
    REGION,
    in_memory,
    write_result,
)
from work_count import calls_of

from vicinal.base.errors import VicinalError
from vicinal.base.schema_check import surely_fits
from vicinal.labs.study.analysis.as_json import UNITS, summary_from_json, summary_to_json
from vicinal.labs.study.analysis.cells import gather
from vicinal.labs.study.analysis.published import compare_published
from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.analysis.summary import Cell, Compared, Summary, Verdict
from vicinal.labs.study.file.model import Published, Quantity, Statistic, Study
from vicinal.labs.study.file.shipped import list_studies, load_study
from vicinal.labs.study.result.reading import Result
from vicinal.labs.study.result.writing import ResultWriter


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return write_result(tmp_path_factory.mktemp("results") / "example")


@pytest.fixture(scope="module")
def summary(result: Result) -> Summary:
    return summarise(result)


@pytest.fixture(scope="module")
def kept(summary: Summary) -> str:
    """The summary as JSON."""
    return json.dumps(summary_to_json(summary))


def cell_of(summary: Summary, environment: str, workload: str, size: int | None = None) -> Cell:
    return next(
        each
        for each in summary.cells
        if (each.environment, each.workload, each.size) == (environment, workload, size)
    )


def compared_of(
    summary: Summary,
    base: str,
    test: str,
    workload: str,
    size: int | None = None,
    statistic: Statistic = Statistic.MEDIAN,
) -> Compared:
    return next(
        each
        for each in summary.compared
        if (each.comparison.base, each.comparison.test) == (base, test)
        and (each.workload, each.size, each.statistic) == (workload, size, statistic)
    )


def test_a_latency_is_half_a_round_trip_in_microseconds(result: Result, summary: Summary) -> None:
    found = cell_of(summary, NATIVE.name, "latency", 1024)
    medians, together = [], []
    for stored in result.trials:
        if (stored.trial.environment, stored.trial.workload) == (NATIVE.name, "latency"):
            (series,) = result.series(stored, sizes=[1024])
            assert series.messages == 2
            together.append(series.nanoseconds / 2 / 1000)
            medians.append(float(np.median(together[-1])))
    assert found.unit == "µs"
    assert found.values[Statistic.MEDIAN] == pytest.approx(medians)
    assert found.across[Statistic.MEDIAN].value == pytest.approx(np.median(medians))
    assert found.pooled is not None
    assert found.pooled.count == 12 * LATENCY.samples
    p99 = np.percentile(np.concatenate(together), 99)
    assert found.pooled.percentiles["P99"].value == pytest.approx(p99)


def test_the_mean_of_a_rate_is_all_work_by_all_time(result: Result, summary: Summary) -> None:
    """This also holds over all trials: the mean of their samples would be higher."""
    work = took = 0.0
    for stored in result.trials:
        if (stored.trial.environment, stored.trial.workload) == (NATIVE.name, "bandwidth"):
            (series,) = result.series(stored, sizes=[65536])
            work += len(series.nanoseconds) * series.messages * series.size
            took += float(series.nanoseconds.sum())
    found = cell_of(summary, NATIVE.name, "bandwidth", 65536)
    assert found.unit == "MB/s"
    assert found.pooled is not None
    assert found.pooled.mean == pytest.approx(1e3 * work / took)


def test_what_was_planted_is_found(summary: Summary) -> None:
    saved = compared_of(summary, NETWORK.name, REGION.name, "latency", 4)
    assert saved.verdict is Verdict.BETTER
    assert saved.ratio is not None
    assert saved.ratio.holds(1.1 / 12)
    assert saved.gain == pytest.approx(1 - saved.ratio.value)
    assert saved.efficiency == pytest.approx(saved.base.value / saved.test.value)
    cost = compared_of(summary, NATIVE.name, REGION.name, "bandwidth", 65536)
    assert cost.verdict is Verdict.WORSE
    assert cost.ratio is not None
    assert cost.ratio.holds(1 / 1.1)
    assert cost.efficiency == pytest.approx(cost.test.value / cost.base.value)
    assert summary.control is not None
    assert summary.control.different == ()
    assert summary.control.tests == len(LATENCY.sizes) + len(BANDWIDTH.sizes) + 4 + 2


def test_corrections_are_over_all_tests_of_the_study(summary: Summary) -> None:
    tests = len(summary.compared)
    assert tests == 2 * (2 * len(LATENCY.sizes) + len(BANDWIDTH.sizes) + 2 * 4 + 2)
    for each in summary.compared:
        assert each.p_signed_rank is not None
        assert each.p_corrected is not None
        least = min(other.p_signed_rank or 1 for other in summary.compared)
        assert each.p_corrected >= min(1.0, tests * least)


def test_published_figures_stand_beside_measured_ones(summary: Summary) -> None:
    absolute, ratio, missing = summary.published
    assert absolute.measured is not None
    latency = cell_of(summary, REGION.name, "latency", 4)
    assert absolute.measured.value == latency.across[Statistic.MEAN].value
    assert ratio.measured is not None
    assert ratio.measured.holds(1.1 / 12)
    assert missing.measured is None
    assert missing.why_not == "guests: no /dev/kvm that works"


def test_a_ratio_of_no_one_size_is_the_farthest_of_all(summary: Summary, result: Result) -> None:
    """Of 0.18 the least, of 1.2 the largest; a figure that was not measured has a reason."""
    compared = (NETWORK.name, REGION.name)
    ratios = [
        each.ratio.value
        for each in summary.compared
        if each.workload == "latency"
        and each.statistic is Statistic.MEDIAN
        and each.ratio
        and (each.comparison.base, each.comparison.test) == compared
    ]
    assert len(ratios) == len(LATENCY.sizes)
    named = Published("P2 fig4", "latency", Quantity.LATENCY, 0.18, "ratio", comparison=compared)
    named = replace(named, statistic=Statistic.MEDIAN)
    guests = ("guests", REGION.name)
    figures = (named, replace(named, value=1.2), replace(named, comparison=guests))
    study = replace(summary.study, published=figures)
    least, largest, missing = compare_published(study, gather(result, study))
    assert least.published == figures[0]
    assert least.measured is not None
    assert largest.measured is not None
    assert least.measured.value == pytest.approx(min(ratios))
    assert largest.measured.value == pytest.approx(max(ratios))
    assert missing.measured is None
    assert missing.why_not == "guests: no /dev/kvm that works"


def test_an_applications_time_is_split(summary: Summary) -> None:
    cell = cell_of(summary, NETWORK.name, LAMMPS.name)
    assert list(cell.parts) == ["communication", "computation"]
    assert cell.parts["computation"].value == pytest.approx(6)
    found = compared_of(
        summary, NETWORK.name, REGION.name, LAMMPS.name, statistic=Statistic.MEAN
    ).split
    assert found is not None
    assert found.communication is not None
    assert found.communication.holds(1.1 / 12)
    assert found.saved_by_communication == pytest.approx(found.saved)
    assert cell_of(summary, NATIVE.name, HPL.name).unit == "GFLOPS"


def test_a_summary_is_kept_as_json_and_comes_back(
    result: Result, summary: Summary, kept: str
) -> None:
    writer, _ = ResultWriter.resume(result.folder)
    with writer:
        writer.write_summary(json.loads(kept), UNITS)
    assert summary_from_json(result.summary()) == summary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.pop("rules"), "the summary has no rules"),
        (lambda values: values["cells"][0].pop("unit"), r"damaged \(cells\[0\] has no unit\)"),
        (
            lambda values: values["compared"][0].update(verdict="yes"),
            r"damaged \(compared\[0\].verdict cannot be \"yes\"\)",
        ),
        (lambda values: values["study"].pop("design"), "design"),
    ],
)
def test_a_damaged_summary_is_refused(
    kept: str, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    values = json.loads(kept)
    change(values)
    with pytest.raises(VicinalError, match=message):
        summary_from_json(values)


@pytest.mark.parametrize("name", ["manifest", "summary"])
def test_the_quick_check_knows_what_is_in_a_result(result: Result, kept: str, name: str) -> None:
    """Otherwise each command that reads a result would load the library and wait for it."""
    if name == "summary":
        values = json.loads(kept) | {"schema": 1, "created": "", "trials": 1, "units": {}}
    else:
        values = json.loads(next(result.folder.rglob(f"{name}*.json")).read_text())
    schema = resources.files("vicinal.labs.study.result.schema") / f"{name}.json"
    assert surely_fits(json.loads(schema.read_text()), values)


@pytest.mark.parametrize("study", list_studies(), ids=lambda study: study.name)
def test_every_study_that_ships_can_be_summarised_after_its_first_block(study: Study) -> None:
    """Simulated times with one sample each: the least that a result can have."""
    recorded = (Quantity.LATENCY, Quantity.BANDWIDTH, Quantity.MESSAGE_RATE)
    workloads = tuple(
        replace(
            each,
            samples=1,
            sizes=each.sizes[:1],
            driver="record" if each.quantity in recorded else each.driver,
        )
        for each in study.workloads
    )
    sizes = {each.name: each.sizes for each in workloads}
    begun = replace(
        study,
        workloads=workloads,
        published=tuple(
            each for each in study.published if each.size in (None, *sizes[each.workload])
        ),
        design=replace(study.design, trials=1),
    )
    costs = {each.name: 1.0 for each in study.environments}
    summary = summarise(in_memory(begun, costs=costs))
    assert {cell.workload for cell in summary.cells} == set(sizes)
    assert {each.verdict for each in summary.compared} <= {Verdict.TOO_FEW}
    assert summary_from_json(json.loads(json.dumps(summary_to_json(summary)))) == summary


def work_of_sweep(step: int) -> tuple[int, int]:
    """The number of comparisons of p1-fig5 with every `step`-th size, and their calls."""
    study = load_study("p1-fig5")
    left_out = {each.name for each in study.environments if each.stands_for is not None}
    part = replace(
        study,
        workloads=tuple(
            replace(each, ranks=2, samples=500, sizes=each.sizes[::step])
            for each in study.workloads
        ),
        published=(),
        unavailable=dict.fromkeys(left_out, "what it stands for is there"),
    )
    result = in_memory(part, costs={each.name: 1.0 for each in study.environments})
    found: list[Summary] = []
    calls = calls_of(lambda: found.append(summarise(result)))
    return len(found[0].compared), calls


@pytest.mark.parametrize(
    ("step", "comparisons"), [(2, 372), pytest.param(1, 720, marks=pytest.mark.long)]
)
def test_the_work_of_a_sweep_grows_with_its_comparisons(step: int, comparisons: int) -> None:
    """The work must not grow with the square of the number of comparisons."""
    few, least = work_of_sweep(4)
    many, calls = work_of_sweep(step)
    assert (few, many) == (204, comparisons)
    print(f"{least / few:.0f} and {calls / many:.0f} calls for a comparison")
    assert calls / many < 1.2 * least / few
