"""Estimates while a study runs: a value of each trial, to be shown and to decide when to stop.

The final report uses the whole result instead of these estimates. A study ends after a fixed number
of blocks, or when its comparisons are decided: `ended`. vicinal.labs.statistics.stopping says why
repeated looks at the data do not cause more false claims.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.stopping import watch
from vicinal.labs.study.analysis.comparing import rule_of
from vicinal.labs.study.file.model import Design, Study, Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.result.samples import Series

_SIZES_SHOWN = 3
"""Sizes of each workload: the smallest, the largest, and one between."""
_MOST_ROWS = 12

Key = tuple[str, int | None]
"""Workload and size."""


class Estimates:
    """Values by workload and size, of each environment by block."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._values: dict[Key, dict[str, dict[int, float]]] = {}
        self._units: dict[Key, str] = {}

    def add(
        self,
        workload: Workload,
        environment: str,
        block: int,
        series: Iterable[Series],
        figures: Sequence[Figure],
    ) -> None:
        """Add the values of a trial, in the workload's first statistic."""
        for size, value, unit in _values(workload, series, figures):
            key = workload.name, size
            self._values.setdefault(key, {}).setdefault(environment, {})[block] = value
            self._units[key] = unit

    def pairs(self, key: Key, test: str, base: str) -> tuple[list[float], list[float]]:
        """The values of two environments in the blocks that have both, in the blocks' order."""
        ours, theirs = (self._values.get(key, {}).get(name, {}) for name in (test, base))
        blocks = sorted(ours.keys() & theirs.keys())
        return [ours[block] for block in blocks], [theirs[block] for block in blocks]

    @property
    def keys(self) -> list[Key]:
        """Workloads and sizes with values."""
        return list(self._values)

    def rows(self) -> list[list[str]]:
        """Rows of cells for people, headings first; empty without values."""
        from vicinal.labs.study.file.reading_sizes import show

        environments = [each.name for each in self._study.environments]
        rows = []
        for workload in self._study.workloads:
            sizes = [size for name, size in self._values if name == workload.name]
            for size in _some(sizes):
                key = workload.name, size
                name = f"{workload.name}, {self._units[key]}"
                found = self._values[key]
                cells = [_cell(list(found.get(each, {}).values())) for each in environments]
                rows.append([name, "" if not size else show(size), *cells])
        if not rows:
            return []
        return [["", "size", *environments], *rows[:_MOST_ROWS]]


def _values(
    workload: Workload, series: Iterable[Series], figures: Sequence[Figure]
) -> Iterable[tuple[int | None, float, str]]:
    """Size, value and unit of what a trial measured. Errors in samples are left to the report."""
    from vicinal.labs.study.analysis.values import (
        described,
        figure_unit,
        figure_values,
        samples_of,
        statistics_of,
    )

    wanted = workload.statistics[0]
    ordered = sorted(series, key=lambda each: each.size)
    for size, group in groupby(ordered, key=lambda each: each.size):
        try:
            samples = samples_of(list(group), workload)
        except VicinalError:
            continue
        value = statistics_of(described(samples), [wanted])[wanted]
        yield size, value, workload.quantity.unit or ""
    for size in {each.size for each in figures}:
        of_size = [each for each in figures if each.size == size]
        unit = figure_unit(of_size, workload)
        if unit is not None:
            figure = figure_values(of_size, workload, unit).get(wanted)
            if figure is not None:
                yield size, figure, unit


def _some(sizes: Sequence[int | None]) -> list[int | None]:
    ordered = sorted(sizes, key=lambda size: -1 if size is None else size)
    if len(ordered) <= _SIZES_SHOWN:
        return ordered
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def _cell(values: Sequence[float]) -> str:
    """The median, with its interval if there are several values."""
    from vicinal.labs.statistics.describe import median_estimate

    if not values:
        return "-"
    estimate = median_estimate(values)
    if len(values) == 1:
        return _number(estimate.value)
    return f"{_number(estimate.value)} [{_number(estimate.low)}, {_number(estimate.high)}]"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


@dataclass(frozen=True)
class Ending:
    """Why a study needs no more blocks."""

    blocks: int
    reasons: dict[str, str]
    """Reason by comparison, workload and size; empty if the number of blocks was fixed."""

    def to_dict(self) -> dict[str, Any]:
        """The value of the key `ending` of a manifest."""
        return {"blocks": self.blocks, "reasons": self.reasons}


def ended(design: Design, estimates: Estimates, blocks: int) -> Ending | None:
    """Why this number of blocks is enough; None if another block is needed."""
    if blocks < design.trials:
        return None
    if design.most_trials is None:
        return Ending(blocks, {})
    reasons = _reasons(design, estimates)
    if blocks >= design.most_trials or (reasons and all(reasons.values())):
        return Ending(blocks, {name: why for name, why in reasons.items() if why is not None})
    return None


def _reasons(design: Design, estimates: Estimates) -> dict[str, str | None]:
    """For each comparison with values: why it needs no more blocks, or None if it needs more."""
    rule = rule_of(design, len(design.comparisons) * len(estimates.keys))
    found: dict[str, str | None] = {}
    for comparison in design.comparisons:
        for key in estimates.keys:
            ours, theirs = estimates.pairs(key, comparison.test, comparison.base)
            if ours:  # otherwise one side failed, or is unavailable here
                look = watch(rule, ours, theirs) if rule is not None else None
                reason = look.reason if look is not None else None
                name = _name(comparison.test, comparison.base, key)
                found[name] = None if reason is None else reason.value
    return found


def _name(test: str, base: str, key: Key) -> str:
    workload, size = key
    return f"{test}/{base} {workload}" + ("" if size is None else f" {size}")
