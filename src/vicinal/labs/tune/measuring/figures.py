"""What a launch printed, as the figures that a search makes better.

Values are formed by the studies' analysis. A program that prints a mean alone gives no P50: nothing
is called what it is not.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from vicinal.base.errors import VicinalError
from vicinal.labs.study.analysis.values import (
    described,
    figure_values,
    parts_of,
    samples_of,
    statistics_of,
)
from vicinal.labs.study.file.model import Quantity, Statistic, Workload
from vicinal.labs.study.result.layout import TOTAL_TIME
from vicinal.labs.study.workloads.driver import Measured
from vicinal.labs.tune.search.objective import Objective

_PERCENTILES = {Statistic.MEDIAN: Objective.P50, Statistic.P99: Objective.P99}


def values_of(workload: Workload, measured: Measured) -> dict[str, float]:
    """By the names of objectives and in their units, as far as the program gave them.

    Processor time is not among them: programs do not print it.
    """
    found: dict[str, float] = {}
    for objective, value in _of_samples(workload, measured):
        found.setdefault(objective.value, value)
    for objective, value in _of_figures(workload, measured):
        found.setdefault(objective.value, value)
    return found


def work_of(measured: Measured) -> float | None:
    """How much the launch did, in messages or bytes; None where nothing says."""
    if measured.work is not None:
        return measured.work
    messages = sum(each.messages * len(each.nanoseconds) for each in measured.series)
    return float(messages) or None


def _of_samples(workload: Workload, measured: Measured) -> Iterator[tuple[Objective, float]]:
    if not measured.series:
        return
    with suppress(VicinalError):  # of ranks whose samples do not belong together
        samples = samples_of(measured.series, replace(workload, quantity=Quantity.LATENCY))
        statistics = statistics_of(described(samples), _PERCENTILES)
        yield from ((_PERCENTILES[each], value) for each, value in statistics.items())
    with suppress(VicinalError):
        if all(each.size > 0 for each in measured.series):
            rates = samples_of(measured.series, replace(workload, quantity=Quantity.BANDWIDTH))
            yield Objective.BANDWIDTH, rates.mean


def _of_figures(workload: Workload, measured: Measured) -> Iterator[tuple[Objective, float]]:
    figures = list(measured.figures)
    mean = (Statistic.MEAN,)
    times = replace(workload, quantity=Quantity.LATENCY, statistics=mean)
    for statistic, value in figure_values(figures, times, "µs").items():
        if statistic in _PERCENTILES:
            yield _PERCENTILES[statistic], value
    rates = replace(workload, quantity=Quantity.BANDWIDTH, statistics=mean)
    rate = figure_values(figures, rates, "MB/s").get(Statistic.MEAN)
    if rate is not None:
        yield Objective.BANDWIDTH, rate
    whole = parts_of(figures).get(TOTAL_TIME)
    if whole is not None:
        yield Objective.APPLICATION, whole
