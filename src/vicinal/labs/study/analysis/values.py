"""From what a trial measured to values in a quantity's unit, one for each statistic."""

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
    """In the quantity's unit, in the order in which they were, one rank after the other."""
    mean: float
    """Arithmetic of costs; of rates the harmonic one, which is all work by all time. Where several
    pairs work side by side, it is the sum of the pairs' rates."""


def samples_of(series: Sequence[Series], workload: Workload) -> Samples:
    """The samples of all ranks at one size.

    Raises VicinalError where ranks that belong together have different numbers of samples, or a
    rate's sample took no time.
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
    """Whether all ranks recorded the same calls, so that the slowest one's time is a call's.

    Of pairs of ranks only one records.
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
            "look at what the workload printed, and measure it again",
        )
    values = np.zeros(lengths.pop())
    mean = 0.0
    for each in series:
        if (each.nanoseconds <= 0).any():
            raise VicinalError(
                "a sample took no time, so it has no rate",
                "have more messages in a sample: its clock is too coarse for so few",
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
    """In a few figures, with the mean that suits the quantity."""
    return replace(describe(samples.values), mean=samples.mean)


def figure_values(
    figures: Sequence[Figure], workload: Workload, unit: str
) -> dict[Statistic, float]:
    """What figures of one size say, in a unit.

    Those that are named after a statistic are it; else the first one in a unit that the quantity
    can have is the workload's first statistic, as a trial has only this one value.
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
    """In which unit figures are shown; None where none of them suits the workload's quantity."""
    suitable = _suitable(figures, workload.quantity)
    if not suitable:
        return None
    return workload.quantity.unit or suitable[0].unit


def parts_of(figures: Sequence[Figure]) -> dict[str, float]:
    """A run's time and its parts, in s, by name and in the order of the figures."""
    return {
        figure.name: seconds
        for figure in figures
        if is_time(figure.unit)
        and math.isfinite(figure.value)
        and figure.name not in _STATISTICS
        and (seconds := convert(figure.value, figure.unit, "s")) is not None
    }


def _suitable(figures: Sequence[Figure], quantity: Quantity) -> list[Figure]:
    """Those of the quantity: of times, that of the whole run first; bare numbers last."""
    found = [each for each in figures if can_be(each.unit, quantity) and math.isfinite(each.value)]
    if quantity is Quantity.TIME:
        found.sort(key=lambda each: each.name != TOTAL_TIME)
    if quantity is Quantity.PERFORMANCE:
        found.sort(key=lambda each: each.unit in RATIO_UNITS)
    return found
