"""Descriptions of samples: means, quantiles, and the order statistics that enclose quantiles.

A quantile's interval lies between two of the sorted values. The number of values below the true
quantile is binomial for any distribution, so the ranks of both values follow from n only (David and
Nagaraja, Order Statistics, 3rd edition, section 7.1). If n is too small for the requested
confidence, the widest interval is returned, and `confidence` has its real confidence: 500 values
cannot enclose P99.9.

The values must be independent. Iterations within a trial often are not, which `autocorrelation`
shows. They also do not contain the differences from start to start. `describe_trials` covers both.
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
    """A description of samples, in their own unit."""

    count: int
    mean: float
    standard_deviation: float
    """With n - 1 in the denominator; 0 for a single sample."""
    minimum: float
    maximum: float
    percentiles: dict[str, Estimate]
    """By the names in PERCENTILES; P50 is the median."""
    autocorrelation: float
    """Lag-1 autocorrelation of the sign relative to the median: 0 none, 1 complete.

    If it is well above 2 / sqrt(count), the intervals are too narrow.
    """

    to_dict = asdict

    @property
    def median(self) -> Estimate:
        """P50."""
        return self.percentiles["P50"]


@dataclass(frozen=True)
class TrialsDescription:
    """A description of the samples of several trials, in their own unit."""

    trials: int
    across: dict[str, Estimate]
    """The median over trials of each trial's `mean`, `minimum`, `maximum` and percentiles, by the
    names in PERCENTILES. The interval shows how much a fresh start changes the figure."""
    pooled: Description
    """The description of all samples together, as if they came from one trial."""

    to_dict = asdict


def describe(samples: Values, confidence: float = CONFIDENCE) -> Description:
    """Describe the samples of one trial.

    Ten million samples take about a second and twice their own memory. Raises ValueError if there
    are no samples, or if one is not a finite number.
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
    """Describe the samples of several trials, and how far the trials agree.

    Raises the errors of `describe`, and ValueError if there are no trials.
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
    """A quantile (0.99 for P99), with an interval between two order statistics.

    The quantile is interpolated between values, as by the default of NumPy and R (type 7). Raises
    ValueError if there are no values, or if `quantile` does not lie between 0 and 1.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile {quantile} does not lie between 0 and 1")
    return _sorted_quantile(np.sort(as_samples(values)), quantile, confidence)


def distribution(samples: Values, points: int = 300) -> list[tuple[float, float]]:
    """The empirical distribution for a plot: pairs of (fraction of the samples, largest of them).

    There are at most `points` pairs, and all values are samples. Half of the pairs are evenly
    spaced over the ranks. The other half gets denser towards the largest sample: it is evenly
    spaced on a logarithmic scale of the remaining fraction, so that one in a million is as visible
    as one in ten. Raises ValueError if there are no samples, or fewer than four points.
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
    """The median, with an interval between two order statistics.

    With fewer than six values no interval reaches 95 %. The widest interval is returned, and
    `confidence` has its real confidence (five values: 93.75 %). Raises ValueError if there are no
    values.
    """
    return quantile_estimate(values, 0.5, confidence)


def mean_estimate(
    values: Values, confidence: float = CONFIDENCE, *, rates: bool = False
) -> Estimate:
    """The mean of trials, with Student's t interval.

    `rates` (MB/s, messages per second) have the harmonic mean, the rate at which all trials
    together did their work. An arithmetic mean would give fast trials too much weight. A single
    value has no interval, and `confidence` is 0. Raises ValueError if there are no values, or if a
    rate is not above zero.
    """
    numbers = as_samples(values).astype(np.float64)
    if rates:
        if (numbers <= 0).any():
            raise ValueError("a rate that is not above zero has no harmonic mean")
        costs = mean_estimate(1 / numbers, confidence)
        # With few and very different rates, the interval of the mean cost may include zero.
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
    """Ranks of the two values that enclose a quantile, from 1, and the interval's confidence."""
    below = (count, quantile)  # the number of values below the true quantile is binomial
    # The k-th smallest value is above the true quantile with P(below <= k - 1), and is not with
    # P(below >= k). Each error may have half of 1 - confidence.
    outside = (1 - confidence) / 2
    position = quantile * (count - 1)
    low = min(max(_binomial_quantile(outside, *below), 1), int(np.floor(position)) + 1)
    high = max(min(_binomial_quantile(1 - outside, *below) + 1, count), int(np.ceil(position)) + 1)
    reached = _binomial(high - 1, *below) - _binomial(low - 1, *below)
    return low, high, max(0.0, reached)


def _binomial(most: int, count: int, chance: float) -> float:
    """P(X <= most) of a binomial distribution. `most` is below `count`.

    `scipy.stats` has this function, but takes a second to load, most of the time of short commands.
    """
    return float(special.betainc(count - most, most + 1, 1 - chance))


def _binomial_quantile(probability: float, count: int, chance: float) -> int:
    """The smallest k with P(X <= k) of at least `probability`, which is below 1."""
    least = max(int(np.ceil(special.bdtrik(probability, count, chance))), 0)
    # Rounding may make it one too large if P(X <= k) equals the probability.
    if least > 0 and _binomial(least - 1, count, chance) >= probability:
        least -= 1
    return least


def _interpolated(ordered: NDArray[Any], position: float) -> float:
    before = int(np.floor(position))
    low = float(ordered[before])
    high = float(ordered[min(before + 1, len(ordered) - 1)])
    return min(low + (position - before) * (high - low), high)


def _autocorrelation(values: NDArray[Any], median: float) -> float:
    """The lag-1 autocorrelation of being above the median, which is robust against outliers."""
    above = values > median
    if len(values) < 2:
        return 0.0
    mean = 2 * float(above.mean()) - 1  # of signs, -1 and 1
    variance = 1 - mean * mean
    if variance == 0:
        return 0.0
    product = 2 * float((above[1:] == above[:-1]).mean()) - 1
    return (product - mean * mean) / variance
