"""Samples in a few figures: means, quantiles, and the order statistics that enclose them.

A quantile's interval lies between two of the sorted values. How many of n values lie below the true
quantile is binomial, whatever their distribution, so the ranks follow from n alone (David and
Nagaraja, Order Statistics, 3rd edition, section 7.1). Where n is too small for the wanted
confidence, the widest interval that there is is given, and `confidence` says what it is worth: 500
values cannot enclose P99.9.

That holds for independent values. Iterations within a trial often are not, which `autocorrelation`
shows, and what differs from start to start is in none of them; `describe_trials` looks at both.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.samples import Values, as_samples

PERCENTILES = {"P50": 0.5, "P90": 0.9, "P95": 0.95, "P99": 0.99, "P99.9": 0.999}


@dataclass(frozen=True)
class Description:
    """Samples of one kind, in their own unit."""

    count: int
    mean: float
    standard_deviation: float
    """Of the samples, with n - 1; 0 for a single one."""
    minimum: float
    maximum: float
    percentiles: dict[str, Estimate]
    """By the names in PERCENTILES; P50 is the median."""
    autocorrelation: float
    """How much a sample's side of the median tells of the next one's: 0 nothing, 1 everything.

    Where it is well above 2 / sqrt(count), the intervals are narrower than they should be.
    """

    to_dict = asdict

    @property
    def median(self) -> Estimate:
        """The same as P50."""
        return self.percentiles["P50"]


@dataclass(frozen=True)
class TrialsDescription:
    """Samples of several trials, in their own unit."""

    trials: int
    across: dict[str, Estimate]
    """`mean`, `minimum`, `maximum` and the names in PERCENTILES: each trial has one, and this is
    the median of the trials'. Its interval tells how much a fresh start changes the figure."""
    pooled: Description
    """All samples together, as if they came from one trial."""

    to_dict = asdict


def describe(samples: Values, confidence: float = CONFIDENCE) -> Description:
    """The samples of one trial, in a few figures.

    Ten million take about a second and twice their own memory. Raises ValueError if there are none,
    or if one of them is no finite number.
    """
    values = as_samples(samples)
    ordered = np.sort(values)
    return Description(
        count=len(values),
        mean=float(values.mean()),
        standard_deviation=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        minimum=float(ordered[0]),
        maximum=float(ordered[-1]),
        percentiles={
            name: _sorted_quantile(ordered, quantile, confidence)
            for name, quantile in PERCENTILES.items()
        },
        autocorrelation=_autocorrelation(values, float(np.median(ordered))),
    )


def describe_trials(trials: Sequence[Values], confidence: float = CONFIDENCE) -> TrialsDescription:
    """The samples of several trials, and how far the trials agree.

    Raises ValueError as `describe` does, and if there are no trials.
    """
    each = [describe(samples, confidence) for samples in trials]
    if not each:
        raise ValueError("no trials")
    figures = {
        "mean": [trial.mean for trial in each],
        "minimum": [trial.minimum for trial in each],
        "maximum": [trial.maximum for trial in each],
    } | {name: [trial.percentiles[name].value for trial in each] for name in PERCENTILES}
    return TrialsDescription(
        trials=len(each),
        across={name: median_estimate(values, confidence) for name, values in figures.items()},
        pooled=describe(np.concatenate([as_samples(samples) for samples in trials]), confidence),
    )


def quantile_estimate(values: Values, quantile: float, confidence: float = CONFIDENCE) -> Estimate:
    """A quantile (0.99 for P99), between two order statistics.

    Between two values it is interpolated, as by NumPy's and R's default (type 7). Raises ValueError
    if there are no values, or if the quantile does not lie between 0 and 1.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile {quantile} does not lie between 0 and 1")
    return _sorted_quantile(np.sort(as_samples(values)), quantile, confidence)


def distribution(samples: Values, points: int = 300) -> list[tuple[float, float]]:
    """The distribution of samples for a plot: (part of them, value that it does not exceed).

    Half of at most `points` lie evenly from the smallest to the largest sample; the others get
    denser towards the largest, evenly on a logarithmic scale of what is left above, so that one in
    a million is as visible as one in ten. All values are samples. Raises ValueError if there are no
    samples, or fewer than four points.
    """
    if points < 4:
        raise ValueError(f"{points} points show no distribution")
    ordered = np.sort(as_samples(samples))
    count = len(ordered)
    even = np.linspace(0, count - 1, points // 2)
    rare = count - np.geomspace(count, 1, points - points // 2)
    ranks = np.unique(np.concatenate([even, rare]).round().astype(np.int64))
    return [(float((rank + 1) / count), float(ordered[rank])) for rank in ranks]


def median_estimate(values: Values, confidence: float = CONFIDENCE) -> Estimate:
    """The median, between two order statistics.

    With fewer than six values no such interval reaches 95 %; the widest one is given then,
    and `confidence` says what it is worth (five values: 93.75 %).
    Raises ValueError if there are no values.
    """
    return quantile_estimate(values, 0.5, confidence)


def mean_estimate(
    values: Values, confidence: float = CONFIDENCE, *, rates: bool = False
) -> Estimate:
    """The mean of trials, with Student's t interval.

    Rates (MB/s, messages per second) have the harmonic mean: it is the rate at which all trials
    together did their work, where the arithmetic one would count the fast trials too often. A
    single value has no interval, and `confidence` is 0. Raises ValueError if there are no values,
    or if a rate is not above zero.
    """
    numbers = as_samples(values).astype(np.float64)
    if rates:
        if (numbers <= 0).any():
            raise ValueError("a rate that is not above zero has no harmonic mean")
        costs = mean_estimate(1 / numbers, confidence)
        # Few and very different rates may leave open whether the mean cost is above zero at all.
        high = 1 / costs.low if costs.low > 0 else float(numbers.max())
        reached = costs.confidence if costs.low > 0 else 0.0
        return Estimate(1 / costs.value, 1 / costs.high, high, reached)
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return Estimate(mean, mean, mean, 0.0)
    error = numbers.std(ddof=1) / np.sqrt(len(numbers))
    reach = float(-special.stdtrit(len(numbers) - 1, (1 - confidence) / 2) * error)
    return Estimate(mean, mean - reach, mean + reach, confidence)


def _sorted_quantile(ordered: NDArray[Any], quantile: float, confidence: float) -> Estimate:
    low, high, reached = _enclosing_ranks(len(ordered), quantile, confidence)
    return Estimate(
        value=float(_interpolated(ordered, quantile * (len(ordered) - 1))),
        low=float(ordered[low - 1]),
        high=float(ordered[high - 1]),
        confidence=reached,
    )


@lru_cache(maxsize=4096)
def _enclosing_ranks(count: int, quantile: float, confidence: float) -> tuple[int, int, float]:
    """Which of the sorted values enclose a quantile, counted from 1, and how surely they do."""
    below = (count, quantile)  # how many values lie below the true quantile is binomial
    # The k-th smallest lies above the true quantile with P(below <= k - 1), and not above it with
    # P(below >= k). Each may happen with half of what is left of the confidence.
    outside = (1 - confidence) / 2
    position = quantile * (count - 1)
    low = min(max(_binomial_quantile(outside, *below), 1), int(np.floor(position)) + 1)
    high = max(min(_binomial_quantile(1 - outside, *below) + 1, count), int(np.ceil(position)) + 1)
    reached = _binomial(high - 1, *below) - _binomial(low - 1, *below)
    return low, high, max(0.0, reached)


def _binomial(most: int, count: int, chance: float) -> float:
    """P(at most so many, which are fewer than `count`).

    `scipy.stats` has the same, and takes a second to load, which is most of what short commands do.
    """
    return float(special.betainc(count - most, most + 1, 1 - chance))


def _binomial_quantile(probability: float, count: int, chance: float) -> int:
    """The fewest of which P(at most so many) reaches a probability below 1."""
    least = max(int(np.ceil(special.bdtrik(probability, count, chance))), 0)
    # Rounding may have made it one too large, where the probability is one that is reached.
    if least > 0 and _binomial(least - 1, count, chance) >= probability:
        least -= 1
    return least


def _interpolated(ordered: NDArray[Any], position: float) -> float:
    before = int(np.floor(position))
    low = float(ordered[before])
    high = float(ordered[min(before + 1, len(ordered) - 1)])
    return min(low + (position - before) * (high - low), high)


def _autocorrelation(values: NDArray[Any], median: float) -> float:
    """The lag-1 autocorrelation of being above the median, which no outlier can dominate."""
    above = values > median
    if len(values) < 2:
        return 0.0
    mean = 2 * float(above.mean()) - 1  # of signs, -1 and 1
    variance = 1 - mean * mean
    if variance == 0:
        return 0.0
    product = 2 * float((above[1:] == above[:-1]).mean()) - 1
    return (product - mean * mean) / variance
