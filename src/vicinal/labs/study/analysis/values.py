"""Converts the measurements of a trial to one value for each statistic, in the quantity's unit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.describe import Description, describe
from vicinal.labs.statistics.samples import Floats
from vicinal.labs.study.analysis.units import RATIO_UNITS, can_be, convert, is_time
from vicinal.labs.study.file.model import Quantity, Statistic, Workload
from vicinal.labs.study.result.layout import TOTAL_TIME, Figure
from vicinal.labs.study.result.samples import Series, slowest

_STATISTICS = {statistic.value: statistic for statistic in Statistic}


@dataclass(frozen=True)
class Samples:
    """All samples of a trial at one size."""

    values: Floats
    """In the quantity's unit, in their order, one rank after the other."""
    mean: float
    """Arithmetic for costs. For rates harmonic, which is all work divided by all time; if several
    pairs work at the same time, the sum of the pairs' rates."""


def samples_of(series: Sequence[Series], workload: Workload) -> Samples:
    """The samples of all ranks at one size.

    Raises VicinalError if ranks that belong together have different numbers of samples, or if a
    sample of a rate took no time.
    """
    if workload.quantity.lower_is_better:
        scale = 1e-3 if workload.quantity is Quantity.LATENCY else 1e-9
        if is_collective(series, workload):
            values: Floats = slowest(series) * np.float64(scale)
        else:
            values = np.concatenate([each.nanoseconds * (scale / each.messages) for each in series])
        return Samples(values, float(values.mean()))
    return _rates(series, workload.quantity)


def is_collective(series: Sequence[Series], workload: Workload) -> bool:
    """Whether all ranks recorded the same calls, so that the slowest rank's time is the call's
    time.

    In a pair of ranks only one records.
    """
    return (
        workload.ranks > 1
        and len(series) >= workload.ranks
        and all(each.messages == 1 for each in series)
    )


def _rates(series: Sequence[Series], quantity: Quantity) -> Samples:
    lengths = {len(each.nanoseconds) for each in series}
    if len(lengths) != 1:
        raise VicinalError(
            "pairs of ranks have different numbers of samples, so their rates do not add up",
            "read the workload's output, and measure it again",
        )
    values = np.zeros(lengths.pop())
    mean = 0.0
    for each in series:
        if (each.nanoseconds <= 0).any():
            raise VicinalError(
                "a sample took no time, so it has no rate",
                "use more messages in a sample: the clock is too coarse for so few",
            )
        work = each.messages * (each.size if quantity is Quantity.BANDWIDTH else 1) * 1e3
        values += work / each.nanoseconds
        mean += work / float(each.nanoseconds.mean())
    return Samples(values, mean)


def statistics_of(description: Description, wanted: Iterable[Statistic]) -> dict[Statistic, float]:
    """One value for each statistic."""
    known = {
        Statistic.MEAN: description.mean,
        Statistic.MEDIAN: description.median.value,
        Statistic.MINIMUM: description.minimum,
        Statistic.MAXIMUM: description.maximum,
    }
    return {
        each: known[each] if each in known else description.percentiles[each.value].value
        for each in wanted
    }


def described(samples: Samples) -> Description:
    """A description of the samples, with the mean that suits the quantity."""
    return replace(describe(samples.values), mean=samples.mean)


def figure_values(
    figures: Sequence[Figure], workload: Workload, unit: str
) -> dict[Statistic, float]:
    """The values of figures of one size, in a unit.

    Figures with a statistic's name give that statistic. Otherwise the first figure in a unit of the
    quantity gives the workload's first statistic, because the trial has only this value.
    """
    suitable = _suitable(figures, workload.quantity)
    found = {
        _STATISTICS[figure.name]: value
        for figure in suitable
        if figure.name in _STATISTICS
        and (value := convert(figure.value, figure.unit, unit)) is not None
    }
    if not found and suitable:
        value = convert(suitable[0].value, suitable[0].unit, unit)
        if value is not None:
            found[workload.statistics[0]] = value
    return found


def figure_unit(figures: Sequence[Figure], workload: Workload) -> str | None:
    """The unit in which figures are shown; None if no figure suits the workload's quantity."""
    suitable = _suitable(figures, workload.quantity)
    if not suitable:
        return None
    return workload.quantity.unit or suitable[0].unit


def parts_of(figures: Sequence[Figure]) -> dict[str, float]:
    """A run's total time and its parts, in s, by name and in the order of the figures."""
    return {
        figure.name: seconds
        for figure in figures
        if is_time(figure.unit)
        and math.isfinite(figure.value)
        and figure.name not in _STATISTICS
        and (seconds := convert(figure.value, figure.unit, "s")) is not None
    }


def _suitable(figures: Sequence[Figure], quantity: Quantity) -> list[Figure]:
    """The figures of the quantity: for times, the total time comes first; for performance, ratios
    come last.
    """
    found = [each for each in figures if can_be(each.unit, quantity) and math.isfinite(each.value)]
    if quantity is Quantity.TIME:
        found.sort(key=lambda each: each.name != TOTAL_TIME)
    if quantity is Quantity.PERFORMANCE:
        found.sort(key=lambda each: each.unit in RATIO_UNITS)
    return found
