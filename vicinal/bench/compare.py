"""Comparing two sides fairly: trials of both in turn, and what they decide."""

from collections.abc import Callable, Sequence
from typing import Any

from vicinal.bench.bars import Bar, Comparison
from vicinal.bench.metric import FACTS
from vicinal.bench.output import Trial
from vicinal.bench.scenario import Scenario
from vicinal.bench.statistics import Estimate, median_estimate, ratio_estimate

RunTrial = Callable[[Scenario], Trial]
"""Starts the program of a comparison once on one side."""


def alternate(
    comparison: Comparison, trials: int, run: RunTrial
) -> tuple[list[Trial], list[Trial]]:
    """Trials of both sides in turn; every other pair begins with the other side."""
    ours: list[Trial] = []
    theirs: list[Trial] = []
    sides = [(comparison.ours, ours), (comparison.theirs, theirs)]
    for _ in range(trials):
        for scenario, results in sides:
            results.append(run(scenario))
        sides.reverse()
    return ours, theirs


def decide(
    bar: Bar, comparison: Comparison, ours: Sequence[Trial], theirs: Sequence[Trial]
) -> dict[str, Any]:
    """One row of the result: whether the ratio of the medians reaches the bar."""
    assert bar.size is not None
    size = bar.size
    measured = ratio_estimate(
        [trial.value(size) for trial in ours], [trial.value(size) for trial in theirs]
    )
    unit = FACTS[comparison.metric].unit
    return make_row(
        bar,
        measured,
        unit="ratio",
        trials=len(ours),
        ours=_side(comparison.ours, ours, size, unit),
        theirs=_side(comparison.theirs, theirs, size, unit),
    )


def make_row(
    bar: Bar,
    measured: Estimate,
    *,
    unit: str,
    trials: int,
    ours: dict[str, Any],
    theirs: dict[str, Any] | None,
) -> dict[str, Any]:
    """A row of the result, as its schema has it."""
    met = bar.met_by(measured.value)
    return {
        "name": bar.name,
        "issue": bar.issue,
        "title": bar.title,
        "metric": bar.metric,
        "size": bar.size,
        "ours": ours,
        "theirs": theirs,
        "measured": measured.to_dict(),
        "unit": unit,
        "bar": {"at_most" if bar.at_most is not None else "at_least": bar.limit},
        "met": met,
        "certain": bar.met_by(measured.low) == met and bar.met_by(measured.high) == met,
        "trials": trials,
        "source": bar.source,
    }


def _side(scenario: Scenario, trials: Sequence[Trial], size: int, unit: str) -> dict[str, Any]:
    return {
        "scenario": scenario.to_dict(),
        "unit": unit,
        "median": median_estimate([trial.value(size) for trial in trials]).to_dict(),
        "raw": [trial.repetitions[size] for trial in trials],
        "hosts": trials[0].hosts,
    }
