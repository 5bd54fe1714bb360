"""Cells: the values of the trials of an environment, workload and size, read one trial at a time.

Only the samples of one environment and workload are in memory at a time. Of these, a value of each
trial for each statistic, the description of all samples, and a few quantiles are kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.describe import (
    Description,
    describe,
    distribution,
    mean_estimate,
    median_estimate,
)
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.samples import Floats
from vicinal.labs.statistics.split import split
from vicinal.labs.study.analysis.summary import Cell
from vicinal.labs.study.analysis.values import (
    described,
    figure_unit,
    figure_values,
    is_collective,
    parts_of,
    samples_of,
    statistics_of,
)
from vicinal.labs.study.file.model import Quantity, Statistic, Study, Workload
from vicinal.labs.study.result.layout import (
    COMMUNICATION_TIME,
    TOTAL_TIME,
    Condition,
    Figure,
    ProgramFact,
    StoredTrial,
)
from vicinal.labs.study.result.reading import Result
from vicinal.labs.study.result.samples import Series

COMPUTATION_TIME = "computation"
"""The remaining part of a run's time if only its communication is known."""


@dataclass(frozen=True)
class TrialValues:
    """The values of one trial in one cell."""

    number: int
    """The trial's number, which gives the order within a block."""
    values: Mapping[Statistic, float]
    samples: int = 0
    """Number of samples behind the values; 0 if the workload itself reported the values."""
    mean: float = 0.0
    """Mean of the samples, of the kind that suits the quantity."""
    autocorrelation: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    """Parts of a run's time, and the total under TOTAL_TIME, in s."""
    collective: bool = False
    """Whether samples are the times of the slowest of all ranks."""
    recording: float | None = None
    """Cost of recording as a part of a typical sample of the fastest series; None if unknown."""
    program: Mapping[str, object] = field(default_factory=dict)


@dataclass
class Gathered:
    """A cell under construction, with its trials by block."""

    environment: str
    workload: Workload
    size: int | None
    unit: str
    trials: dict[int, TrialValues] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    pooled: Description | None = None
    tail: tuple[tuple[float, float], ...] = ()

    @property
    def label(self) -> str:
        """Environment, workload and size, for messages."""
        return cell_label(self.environment, self.workload.name, self.size)

    def values(self, statistic: Statistic) -> dict[int, float]:
        """Values by block, in the blocks' order, of the trials that have the statistic."""
        return {
            block: trial.values[statistic]
            for block, trial in sorted(self.trials.items())
            if statistic in trial.values
        }

    def cell(self, alpha: float) -> Cell:
        """The medians, intervals and quantiles that a summary contains."""
        found = {
            statistic: tuple(values.values())
            for statistic in Statistic
            if (values := self.values(statistic))
        }
        return Cell(
            environment=self.environment,
            workload=self.workload.name,
            size=self.size,
            quantity=self.workload.quantity,
            unit=self.unit,
            trials=len(self.trials),
            failures=tuple(self.failures),
            across={
                statistic: median_estimate(values, 1 - alpha) for statistic, values in found.items()
            },
            values=found,
            pooled=self.pooled,
            tail=self.tail,
            parts=_part_estimates(list(self.trials.values()), 1 - alpha),
        )


Cells = Mapping[tuple[str, str, int | None], Gathered]
"""By environment, workload and size."""


def cell_label(environment: str, workload: str, size: int | None) -> str:
    """Environment, workload and size, for messages."""
    return f"{environment}, {workload}" + ("" if size is None else f", {size} B")


def gather(result: Result, study: Study) -> Cells:
    """All cells of the study's workloads with trials, including cells of the A/A control."""
    wanted = {workload.name: _statistics_wanted(study, workload) for workload in study.workloads}
    by_side: dict[tuple[str, str], list[StoredTrial]] = defaultdict(list)
    for stored in result.trials:
        if stored.trial.workload in wanted:
            by_side[stored.trial.environment, stored.trial.workload].append(stored)
    cells: dict[tuple[str, str, int | None], Gathered] = {}
    for (environment, name), trials in by_side.items():
        side = _Side(environment, study.workload(name), wanted[name])
        side.read(result, trials)
        for gathered in side.finish():
            cells[environment, name, gathered.size] = gathered
    return cells


def _statistics_wanted(study: Study, workload: Workload) -> tuple[Statistic, ...]:
    """The statistics that are compared, and those that papers published."""
    published = [each.statistic for each in study.published if each.workload == workload.name]
    return tuple(dict.fromkeys((*workload.statistics, *published)))


class _Side:
    """All trials of one workload in one environment."""

    def __init__(self, environment: str, workload: Workload, wanted: Iterable[Statistic]) -> None:
        self.environment = environment
        self.workload = workload
        self.wanted = tuple(wanted)
        self.cells: dict[int | None, Gathered] = {}
        self.samples: dict[int | None, dict[int, Floats]] = defaultdict(dict)
        self.failures: list[str] = []

    def read(self, result: Result, trials: Sequence[StoredTrial]) -> None:
        for stored in trials:
            if stored.failure is not None:
                self.failures.append(f"trial {stored.number}: {stored.failure}")
                continue
            try:
                found = list(self._of_samples(result, stored)) or list(self._of_figures(stored))
            except VicinalError as error:
                self.failures.append(f"trial {stored.number}: {error.message}")
                continue
            if not found:
                self.failures.append(
                    f"trial {stored.number}: it gave no {self.workload.quantity.value}"
                )
            for size, unit, values, samples in found:
                cell = self._cell(size, unit)
                cell.trials[stored.trial.block] = values  # the later one of two in a block
                if samples is not None:
                    self.samples[size][stored.trial.block] = samples

    def finish(self) -> Iterator[Gathered]:
        """The cells; if nothing was measured, the cells that were planned."""
        if not self.cells:
            for size in self.workload.sizes or (None,):
                self._cell(size, self.workload.quantity.unit or "")
        for size, cell in self.cells.items():
            cell.failures = self.failures
            samples = self.samples.pop(size, {})
            if samples:
                merged = np.concatenate(list(samples.values()))
                samples.clear()
                cell.pooled = _pooled(merged, cell.trials.values(), self.workload.quantity)
                cell.tail = tuple(distribution(merged))
            yield cell

    def _cell(self, size: int | None, unit: str) -> Gathered:
        if size not in self.cells:
            self.cells[size] = Gathered(self.environment, self.workload, size, unit)
        return self.cells[size]

    def _of_samples(
        self, result: Result, stored: StoredTrial
    ) -> Iterator[tuple[int | None, str, TrialValues, Floats | None]]:
        quantity = self.workload.quantity
        if quantity is Quantity.PERFORMANCE or not stored.series:
            return
        if quantity is Quantity.TIME and figure_unit(stored.trial.figures, self.workload):
            return  # the program times the whole run itself
        program = _program_facts(stored)
        whole = sorted(result.series(stored), key=lambda each: each.size)
        for bytes_, group in groupby(whole, key=lambda each: each.size):
            series = list(group)
            samples = samples_of(series, self.workload)
            description = described(samples)
            size = None if bytes_ == 0 and not self.workload.sizes else bytes_
            values = TrialValues(
                number=stored.number,
                values=statistics_of(description, self.wanted),
                samples=description.count,
                mean=description.mean,
                autocorrelation=description.autocorrelation,
                collective=is_collective(series, self.workload),
                recording=_recording_share(series, program),
                program=program,
            )
            yield size, quantity.unit or "", values, samples.values

    def _of_figures(
        self, stored: StoredTrial
    ) -> Iterator[tuple[int | None, str, TrialValues, Floats | None]]:
        by_size: dict[int | None, list[Figure]] = defaultdict(list)
        for figure in stored.trial.figures:
            by_size[figure.size].append(figure)
        for size, figures in by_size.items():
            known = self.cells.get(size)
            unit = known.unit if known else figure_unit(figures, self.workload)
            values = figure_values(figures, self.workload, unit) if unit is not None else {}
            if unit is not None and values:
                yield (
                    size,
                    unit,
                    TrialValues(
                        number=stored.number,
                        values=values,
                        parts=parts_of(figures),
                        program=_program_facts(stored),
                    ),
                    None,
                )


def _program_facts(stored: StoredTrial) -> Mapping[str, object]:
    facts = stored.trial.conditions.get(Condition.PROGRAM)
    return facts if isinstance(facts, dict) else {}


def _recording_share(series: Sequence[Series], program: Mapping[str, object]) -> float | None:
    cost = program.get(ProgramFact.RECORDING)
    if not isinstance(cost, int | float):
        return None
    typical = min(float(np.median(each.nanoseconds)) for each in series)
    return float(cost) / typical if typical > 0 else 1.0


def _pooled(merged: Floats, trials: Iterable[TrialValues], quantity: Quantity) -> Description:
    """All samples in a few values. The mean of a rate is all work divided by all time."""
    found = describe(merged)
    if quantity.lower_is_better:
        return found
    return replace(found, mean=found.count / sum(each.samples / each.mean for each in trials))


def _part_estimates(trials: Sequence[TrialValues], confidence: float) -> dict[str, Estimate]:
    """Means over the trials that have all parts."""
    named = [trial.parts for trial in trials if len(trial.parts) > 1]
    if not named:
        return {}
    names = [
        name for name in named[0] if name != TOTAL_TIME and all(name in each for each in named)
    ]
    values = {name: [each[name] for each in named] for name in names}
    if names == [COMMUNICATION_TIME] and all(TOTAL_TIME in each for each in named):
        total = [each[TOTAL_TIME] for each in named]
        with suppress(ValueError):  # the program reports more communication than total time
            found = split(total, values[COMMUNICATION_TIME], confidence)
            return {COMMUNICATION_TIME: found.communication, COMPUTATION_TIME: found.computation}
    return {name: mean_estimate(each, confidence) for name, each in values.items()}
