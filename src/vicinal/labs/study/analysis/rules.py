"""The rules of benchmarking that a report must keep, each checked by this module.

The rules are those of Hoefler and Belli ("Scientific benchmarking of parallel computing systems",
SC15), as far as a program can judge them. It knows what a result measured, the kind of its values,
and what is documented.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vicinal.labs.statistics.describe import PERCENTILES
from vicinal.labs.study.analysis.cells import Cells, Gathered
from vicinal.labs.study.analysis.summary import Compared, RuleChecked
from vicinal.labs.study.analysis.units import RATIO_UNITS
from vicinal.labs.study.file.model import Quantity, Statistic, Study
from vicinal.labs.study.result.layout import Condition, ProgramFact
from vicinal.labs.study.result.reading import Result

BEYOND = 5
"""Samples of a trial that a percentile needs beyond it to be more than chance."""


@dataclass(frozen=True)
class Evidence:
    """The data for the checks."""

    result: Result
    study: Study
    cells: Cells
    compared: Sequence[Compared]

    @property
    def measured(self) -> list[Gathered]:
        """Cells with values, without cells of the A/A control."""
        names = {environment.name for environment in self.study.environments}
        return [each for each in self.cells.values() if each.trials and each.environment in names]


def check_rules(
    result: Result, study: Study, cells: Cells, compared: Sequence[Compared]
) -> tuple[RuleChecked, ...]:
    """All rules, in the order in which they are shown."""
    evidence = Evidence(result, study, cells, compared)
    return tuple(
        RuleChecked(name, text, tuple(dict.fromkeys(broken(evidence))))
        for name, text, broken in _RULES
    )


def _absolute_values(evidence: Evidence) -> Iterator[str]:
    for cell in evidence.measured:
        if cell.unit in RATIO_UNITS:
            yield f"{_side(cell)}: its program reports only a ratio ({cell.unit or 'no unit'})"
    shown = {
        (each.comparison.base, each.comparison.test, each.workload, each.size)
        for each in evidence.compared
    }
    for published in evidence.study.published:
        sides = published.comparison
        if sides is None:
            continue
        both = all(
            (found := evidence.cells.get((side, published.workload, published.size)))
            and found.trials
            for side in sides
        )
        if both and (*sides, published.workload, published.size) not in shown:
            yield (
                f"{published.source}: the study does not compare {sides[0]} with {sides[1]}, so "
                "the ratio has no absolute values beside it"
            )


def _means(evidence: Evidence) -> Iterator[str]:
    for cell in evidence.measured:
        if cell.workload.quantity in (Quantity.BANDWIDTH, Quantity.MESSAGE_RATE) and any(
            Statistic.MEAN in trial.values and trial.samples == 0 for trial in cell.trials.values()
        ):
            yield f"{_side(cell)}: its program reports a mean of rates and does not say which mean"


def _averaged_ratios(evidence: Evidence) -> Iterator[str]:
    for cell in evidence.measured:
        if cell.unit in RATIO_UNITS and len(cell.trials) > 1:
            yield f"{_side(cell)}: ratios of {len(cell.trials)} trials are combined"


def _intervals(evidence: Evidence) -> Iterator[str]:
    confidence = 1 - evidence.study.design.alpha
    for cell in evidence.measured:
        across = cell.cell(evidence.study.design.alpha).across
        reached = min(estimate.confidence for estimate in across.values())
        if reached < confidence:
            yield (
                f"{_side(cell)}: {len(cell.trials)} trials enclose a median with "
                f"{reached * 100:.0f} % instead of {confidence * 100:.0f} %"
            )


def _percentiles(evidence: Evidence) -> Iterator[str]:
    few: dict[tuple[str, Statistic], list[int]] = {}
    for cell in evidence.measured:
        if cell.workload.quantity is not Quantity.LATENCY:
            continue
        if cell.pooled is None:
            yield f"{_side(cell)}: its program reports no samples, so their tail is unknown"
            continue
        fewest = min(trial.samples for trial in cell.trials.values())
        for statistic in cell.workload.statistics:
            quantile = PERCENTILES.get(statistic.value)  # None: not a percentile of the tail
            if quantile is not None and fewest * (1 - quantile) < BEYOND:
                few.setdefault((_side(cell), statistic), []).append(fewest)
    for (side, statistic), counts in few.items():
        fewest = min(counts)
        beyond = fewest * (1 - PERCENTILES[statistic.value])
        sizes = "1 size" if len(counts) == 1 else f"{len(counts)} sizes"
        yield (
            f"{side}: {fewest} samples of a trial have only {beyond:.3g} beyond "
            f"{statistic.value}, too few, in {sizes}"
        )


def _factors(evidence: Evidence) -> Iterator[str]:
    manifest = evidence.result.manifest
    for part in ("host", "versions"):
        for name, value in _leaves(manifest[part]):
            if value == "unknown":
                yield f"manifest: {part}.{name} is unknown"
    if str(manifest["versions"].get("commit", "")).endswith("+"):
        yield f"manifest: files differ from the commit {manifest['versions']['commit'][:-1]}"
    for stored in evidence.result.trials:
        if stored.failure is None and Condition.LOAD not in stored.trial.conditions:
            yield (
                f"{stored.trial.environment}, {stored.trial.workload}: the machine's load was not "
                "recorded"
            )


def _time(evidence: Evidence) -> Iterator[str]:
    for cell in evidence.measured:
        for trial in cell.trials.values():
            if ProgramFact.CLOCK not in trial.program:
                yield f"{_side(cell)}: its program does not name its clock"
            elif trial.collective and ProgramFact.APART not in trial.program:
                yield f"{_side(cell)}: its program does not say whether ranks begin together"


def _bounds(evidence: Evidence) -> Iterator[str]:
    native = {
        environment.name
        for environment in evidence.study.environments
        if environment.backends == {"host"}
    }
    bounded = {
        (cell.workload.name, cell.size) for cell in evidence.measured if cell.environment in native
    }
    for cell in evidence.measured:
        if cell.environment not in native and (cell.workload.name, cell.size) not in bounded:
            yield f"{_side(cell)}: there is no native measurement, which would be a bound"


_RULES: tuple[tuple[str, str, Callable[[Evidence], Iterable[str]]], ...] = (
    (
        "absolute values",
        "Every ratio has its absolute values beside it.",
        _absolute_values,
    ),
    (
        "means",
        "Means of costs are arithmetic, and means of rates are harmonic.",
        _means,
    ),
    (
        "no averaged ratios",
        "Ratios are not averaged: a ratio is that of two values, or the median of pairs.",
        _averaged_ratios,
    ),
    (
        "intervals",
        "Values that vary between trials have an interval of the requested confidence.",
        _intervals,
    ),
    (
        "percentiles",
        "Latencies have percentiles, of enough samples to be more than chance.",
        _percentiles,
    ),
    (
        "factors",
        "Factors that may have made a difference are recorded: machine, versions, load.",
        _factors,
    ),
    (
        "time",
        "The clock is named, and whether ranks began together.",
        _time,
    ),
    (
        "bounds",
        "Virtual environments have the native machine beside them, as a bound.",
        _bounds,
    ),
)


def _side(cell: Gathered) -> str:
    return f"{cell.environment}, {cell.workload.name}"


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
