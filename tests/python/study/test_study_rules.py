"""Each rule of benchmarking, with a result that keeps it and one that breaks it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from study_results import (
    BANDWIDTH,
    BCAST,
    HPL,
    NATIVE,
    REGION,
    SMALL,
    Drawn,
    SimulatedHost,
    in_memory,
    trials_of,
)

from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.file.model import Published, Quantity, Statistic, Study
from vicinal.labs.study.result.layout import Condition, Figure

RULES = (
    "absolute values",
    "means",
    "no averaged ratios",
    "intervals",
    "percentiles",
    "factors",
    "time",
    "bounds",
)
"""The rule about lines is tested on drawn plots, in test_study_report_plots.py."""

COLLECTIVE = replace(SMALL, workloads=(replace(BCAST, sizes=(8, 64), samples=500),))
RATES = replace(SMALL, workloads=(replace(BANDWIDTH, sizes=(8, 64), samples=50),))
PERFORMANCE = replace(SMALL, workloads=(HPL,))
PROGRAM = SimulatedHost().program


def without(values: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def with_figures(*figures: Figure) -> Callable[[Drawn], Drawn]:
    """Replace the samples of a trial by figures of the program."""
    return lambda drawn: (replace(drawn[0], figures=figures), [])


@dataclass(frozen=True)
class Broken:
    """A result that breaks a rule, and where the rule says that it is broken."""

    study: Study
    broken_at: tuple[str, ...]
    host: SimulatedHost | None = None
    trial: Callable[[Drawn], Drawn] = lambda drawn: drawn
    manifest: Callable[[dict[str, Any]], object] = lambda manifest: manifest


BREAKING = {
    "absolute values, a program's": (
        "absolute values",
        Broken(
            PERFORMANCE,
            (
                "native, hpl: its program reports only a ratio (%)",
                "containers-region, hpl: its program reports only a ratio (%)",
            ),
            trial=with_figures(Figure("efficiency", 70.0, "%")),
        ),
    ),
    "absolute values, a paper's": (
        "absolute values",
        Broken(
            replace(
                SMALL,
                published=(
                    Published(
                        "P9 fig1",
                        "latency",
                        Quantity.LATENCY,
                        1.2,
                        "ratio",
                        comparison=(REGION.name, NATIVE.name),
                        size=8,
                    ),
                ),
            ),
            (
                "P9 fig1: the study does not compare containers-region with native, so the ratio "
                "has no absolute values beside it",
            ),
        ),
    ),
    "means": (
        "means",
        Broken(
            RATES,
            tuple(
                f"{name}, bandwidth: its program reports a mean of rates "
                "and does not say which mean"
                for name in ("native", "containers-region")
            ),
            trial=with_figures(Figure("mean", 512.0, "MB/s", 8)),
        ),
    ),
    "no averaged ratios": (
        "no averaged ratios",
        Broken(
            PERFORMANCE,
            (
                "native, hpl: ratios of 9 trials are combined",
                "containers-region, hpl: ratios of 9 trials are combined",
            ),
            trial=with_figures(Figure("efficiency", 0.7, "ratio")),
        ),
    ),
    "intervals": (
        "intervals",
        Broken(
            replace(SMALL, design=replace(SMALL.design, trials=4)),
            (
                "native, latency: 4 trials enclose a median with 88 % instead of 95 %",
                "containers-region, latency: 4 trials enclose a median with 88 % instead of 95 %",
            ),
        ),
    ),
    "percentiles, too few samples": (
        "percentiles",
        Broken(
            replace(SMALL, workloads=(replace(SMALL.workloads[0], samples=499),)),
            (
                "native, latency: 499 samples of a trial have only 4.99 beyond P99, too few, in "
                "2 sizes",
                "containers-region, latency: 499 samples of a trial have only 4.99 beyond P99, "
                "too few, in 2 sizes",
            ),
        ),
    ),
    "percentiles, no samples": (
        "percentiles",
        Broken(
            SMALL,
            tuple(
                f"{name}, latency: its program reports no samples, so their tail is unknown"
                for name in ("native", "containers-region")
            ),
            trial=with_figures(Figure("mean", 1.5, "us", 8)),
        ),
    ),
    "factors, a version": (
        "factors",
        Broken(
            SMALL,
            ("manifest: versions.mpich-libfabric is unknown",),
            manifest=lambda manifest: manifest["versions"].update({"mpich-libfabric": "unknown"}),
        ),
    ),
    "factors, a commit": (
        "factors",
        Broken(
            SMALL,
            ("manifest: files differ from the commit abc",),
            manifest=lambda manifest: manifest["versions"].update(commit="abc+"),
        ),
    ),
    "factors, the load": (
        "factors",
        Broken(
            SMALL,
            (
                "native, latency: the machine's load was not recorded",
                "native+control, latency: the machine's load was not recorded",
                "containers-region, latency: the machine's load was not recorded",
            ),
            host=SimulatedHost(conditions=without(SimulatedHost().conditions, Condition.LOAD)),
        ),
    ),
    "time, the clock": (
        "time",
        Broken(
            SMALL,
            tuple(
                f"{name}, latency: its program does not name its clock"
                for name in ("native", "containers-region")
            ),
            host=SimulatedHost(program=without(PROGRAM, "clock")),
        ),
    ),
    "time, the ranks": (
        "time",
        Broken(
            COLLECTIVE,
            tuple(
                f"{name}, bcast: its program does not say whether ranks begin together"
                for name in ("native", "containers-region")
            ),
            host=SimulatedHost(program=without(PROGRAM, "apart")),
        ),
    ),
    "bounds": (
        "bounds",
        Broken(
            replace(SMALL, unavailable={NATIVE.name: "it is not there"}),
            ("containers-region, latency: there is no native measurement, which would be a bound",),
        ),
    ),
}


@pytest.mark.parametrize(
    "study", [SMALL, COLLECTIVE, RATES, PERFORMANCE], ids=lambda each: each.workloads[0].name
)
def test_a_result_that_keeps_all_rules(study: Study) -> None:
    rules = summarise(in_memory(study)).rules
    assert tuple(rule.name for rule in rules) == RULES
    assert {rule.name: rule.broken for rule in rules} == dict.fromkeys(RULES, ())


@pytest.mark.parametrize("name", BREAKING)
def test_a_result_that_breaks_a_rule(name: str) -> None:
    rule, broken = BREAKING[name]
    control = None if NATIVE.name in broken.study.unavailable else broken.study.design.control
    study = replace(broken.study, design=replace(broken.study.design, control=control))
    drawn = [broken.trial(each) for each in trials_of(study, host=broken.host)]
    result = in_memory(study, drawn=drawn)
    broken.manifest(result.manifest)
    found = {each.name: each.broken for each in summarise(result).rules}
    assert sorted(found[rule]) == sorted(broken.broken_at)


def test_sizes_alone_break_no_rule() -> None:
    """The distance of sizes matters only if a line joins them, and a result draws no lines."""
    apart = replace(SMALL, workloads=(replace(SMALL.workloads[0], sizes=(8, 65536)),))
    assert all(not rule.broken for rule in summarise(in_memory(apart)).rules)


def test_every_rule_has_a_result_that_breaks_it() -> None:
    assert {rule for rule, _ in BREAKING.values()} == set(RULES)


def test_tails_are_asked_of_percentiles_that_are_compared_alone() -> None:
    """A median of few samples is no tail."""
    every = (Statistic.MEAN, Statistic.MEDIAN, Statistic.MINIMUM, Statistic.MAXIMUM)
    few = replace(SMALL.workloads[0], samples=3, statistics=every)
    rules = {
        rule.name: rule.broken
        for rule in summarise(in_memory(replace(SMALL, workloads=(few,)))).rules
    }
    assert rules["percentiles"] == ()
