"""Ratios of medians and of means, paired ratios, and efficiencies.

Trial i of both sides ran in block i, and blocks stay together: what slowed both sides of one down
counts as little as it can. There are three ratios, for three purposes:

- of the medians of both sides. Who divides the two absolute values that stand beside it gets the
  same figure. Its interval is the bootstrap's (percentile), over blocks.
- of the means, for figures that were published as means. Its interval is Fieller's (1954): all
  ratios that a paired t-test does not reject. The bootstrap's would be too narrow.
- of a typical block, the median of the blocks' ratios. What disturbs whole blocks is not in it, so
  on a disturbed machine its interval is several times narrower. It comes from the bootstrap (BCa;
  Efron 1987); `signed_rank` has another for the same purpose, which is exact.

docs/explanation/statistics.md says how often each interval holds the true value on simulated
machines.

The medians of a bootstrap's resamples are formed without making the resamples. Which trials a
resample draws depends on their number and on the seed, and not on their values. So how often each
trial is in each resample is counted once, and is the same for all samples of that length: a study
has hundreds. A resample's median follows from the counts, taken in the order of the values. The
medians are to the last bit those that `scipy.stats.bootstrap` computes with the same seed, which a
test holds them to. SciPy takes ten times as long and more, most of it to put each of the resamples
in order.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.samples import Floats, Scale, Values, as_pairs, as_samples, differences

_RESAMPLES = 9999
_SEED = 20140301  # the same values always give the same interval

_KEPT = 8
"""Lengths whose counts are kept: 100 kB for ten trials."""


class Centre(StrEnum):
    """What stands for the trials of a side."""

    MEDIAN = "median"
    MEAN = "mean"


@dataclass(frozen=True)
class Efficiency:
    """How much of the native performance is left: 1 all of it, above 1 it is better than native."""

    value: Estimate
    """native / virtual where lower is better, virtual / native where higher is."""
    virtual: float
    native: float
    """Both absolutes, in the unit that they came in."""
    lower_is_better: bool
    centre: Centre

    to_dict = asdict


def efficiency(
    virtual: Values,
    native: Values,
    *,
    lower_is_better: bool,
    centre: Centre = Centre.MEDIAN,
    confidence: float = CONFIDENCE,
) -> Efficiency:
    """What virtualization leaves of the performance: 1.69 us native, 2.235 us virtual: 0.7561.

    Single published values may be given too; their interval has a confidence of 0.
    Raises ValueError if the sides make no pairs, or if one is not above zero.
    """
    sides = (native, virtual) if lower_is_better else (virtual, native)
    for side in sides:
        if (as_samples(side) <= 0).any():
            raise ValueError("a value that is not above zero has no efficiency")
    ratio, average = _RATIOS[centre]
    return Efficiency(
        value=ratio(*sides, confidence=confidence),
        virtual=float(average(as_samples(virtual))),
        native=float(average(as_samples(native))),
        lower_is_better=lower_is_better,
        centre=centre,
    )


def ratio_estimate(ours: Values, theirs: Values, *, confidence: float = CONFIDENCE) -> Estimate:
    """median(ours) / median(theirs), where trial i of both ran in block i.

    With a single pair there is no interval, and `confidence` is 0. Raises ValueError if there are
    no pairs or if the sides differ in length.
    """
    return best_ratio_estimate(ours, [theirs], lower_is_better=True, confidence=confidence)


def paired_ratio(ours: Values, theirs: Values) -> float:
    """The median of ours / theirs over the blocks alone. Raises ValueError as its estimate does."""
    return float(np.median(np.exp(differences(ours, theirs, Scale.RATIO))))


def paired_ratio_estimate(
    ours: Values, theirs: Values, *, confidence: float = CONFIDENCE
) -> Estimate:
    """The median of ours / theirs over the blocks, with the BCa interval of the bootstrap.

    With a single pair there is no interval, and `confidence` is 0. Raises ValueError if there are
    no pairs, if the sides differ in length or if a value is not above zero.
    """
    ratios = np.exp(differences(ours, theirs, Scale.RATIO))
    value = float(np.median(ratios))
    if len(ratios) == 1:
        return Estimate(value, value, value, 0.0)
    medians = resampled_medians(ratios, _RESAMPLES, _SEED)
    resampled: Any = SimpleNamespace(bootstrap_distribution=medians)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (ratios,),
            np.median,
            vectorized=True,
            method="BCa",
            n_resamples=0,  # their medians are there already
            bootstrap_result=resampled,
            confidence_level=confidence,
        )
    low, high = found.confidence_interval
    if np.isnan(low) or np.isnan(high):
        # Where most values are equal there is nothing to correct by, and the plain interval is
        # enough.
        outside = (1 - confidence) / 2
        low, high = np.quantile(medians, (outside, 1 - outside))
    return Estimate(value, float(low), float(high), confidence)


def mean_ratio_estimate(
    ours: Values, theirs: Values, *, confidence: float = CONFIDENCE
) -> Estimate:
    """mean(ours) / mean(theirs), where trial i of both ran in block i.

    With a single pair, or with such noise that the mean of theirs could be zero, there is no
    interval, and `confidence` is 0. Raises ValueError if there are no pairs or if the sides differ
    in length.
    """
    left, right = as_pairs(ours, theirs)
    value = float(left.mean() / right.mean())
    if len(left) == 1:
        return Estimate(value, value, value, 0.0)
    covariance = np.cov(left, right) / len(left)
    squared = float(stats.t.isf((1 - confidence) / 2, len(left) - 1)) ** 2
    # The ratios r with (mean(ours) - r mean(theirs))^2 <= t^2 var(that): between a parabola's
    # roots.
    curve = right.mean() ** 2 - squared * covariance[1, 1]
    middle = left.mean() * right.mean() - squared * covariance[0, 1]
    rest = left.mean() ** 2 - squared * covariance[0, 0]
    if curve <= 0:
        return Estimate(value, value, value, 0.0)
    reach = np.sqrt(max(0.0, middle * middle - curve * rest))
    low, high = (middle - reach) / curve, (middle + reach) / curve
    return Estimate(value, float(low), float(high), confidence)


def best_ratio_estimate(
    ours: Values,
    candidates: Sequence[Values],
    *,
    lower_is_better: bool,
    paired: bool = True,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """median(ours) / the best of the candidates' medians.

    Each resample of the bootstrap picks its best candidate anew, so that the interval has
    in it that another one might have been the best. Trial i of all sides ran in block i if
    `paired`, and blocks are drawn; otherwise each side's trials are drawn by themselves.
    Raises ValueError if there are no trials, or if paired sides differ in length.
    """
    best = np.min if lower_is_better else np.max
    return _ratio(ours, candidates, best, paired=paired, confidence=confidence)


def sum_ratio_estimate(
    ours: Values, parts: Sequence[Values], confidence: float = CONFIDENCE
) -> Estimate:
    """median(ours) / the sum of the parts' medians, where trials make no pairs.

    Raises ValueError if a side has no trials.
    """
    return _ratio(ours, parts, np.sum, paired=False, confidence=confidence)


_RATIOS: dict[Centre, tuple[Callable[..., Estimate], Callable[..., Any]]] = {
    Centre.MEDIAN: (ratio_estimate, np.median),
    Centre.MEAN: (mean_ratio_estimate, np.mean),
}


def _ratio(
    ours: Values,
    others: Sequence[Values],
    combine: Callable[..., np.ndarray],
    *,
    paired: bool,
    confidence: float,
) -> Estimate:
    """median(ours) / what `combine` makes of the others' medians."""
    lengths = {len(side) for side in (ours, *others)}
    if 0 in lengths or not others or (paired and len(lengths) > 1):
        raise ValueError(f"{sorted(lengths)} trials do not make pairs")
    sides = [as_samples(side).astype(np.float64) for side in (ours, *others)]

    def ratio(*drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        medians = [np.median(side, axis=axis) for side in drawn]
        quotient: np.ndarray = medians[0] / combine(np.stack(medians[1:]), axis=0)
        return quotient

    value = float(ratio(*sides))
    if lengths == {1}:
        return Estimate(value, value, value, 0.0)

    interval = stats.bootstrap(
        sides,
        ratio,
        paired=paired,
        vectorized=True,
        method="percentile",
        n_resamples=_RESAMPLES,
        confidence_level=confidence,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high), confidence)


def resampled_medians(values: Floats, resamples: int, seed: int) -> Floats:
    """The median of each of so many resamples of the values, with replacement."""
    count = len(values)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    # Row k: how many of a resample's values are among the k + 1 smallest.
    counts = _counts(count, resamples, seed)
    up_to = np.cumsum(counts[order], axis=0, dtype=counts.dtype)
    upper: Floats = ordered[_place(up_to, count // 2)]
    if count % 2:
        return upper
    lower: Floats = ordered[_place(up_to, count // 2 - 1)]
    return (lower + upper) / 2


def _place(up_to: NDArray[Any], rank: int) -> NDArray[Any]:
    """Which of the ordered values a resample's value of that rank is, counted from 0."""
    return np.asarray((up_to <= rank).sum(axis=0, dtype=up_to.dtype))


@lru_cache(maxsize=_KEPT)
def _counts(count: int, resamples: int, seed: int) -> NDArray[Any]:
    """How often value i is in resample j: drawn as SciPy draws, one resample after the other.

    In the smallest integers that their sum fits in.
    """
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    of_resample = count * np.arange(resamples)[:, np.newaxis]
    counted = np.bincount((drawn + of_resample).ravel(), minlength=resamples * count)
    small = counted.reshape(resamples, count).T.astype(np.min_scalar_type(count))
    found = np.ascontiguousarray(small)
    found.flags.writeable = False  # all share it
    return found
