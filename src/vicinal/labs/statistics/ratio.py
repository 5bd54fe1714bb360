"""Ratios of medians and of means, paired ratios, and efficiencies.

Trial i of both sides ran in block i. Methods keep blocks together, so that a disturbance of a whole
block has little effect. There are three ratios, for three purposes:

- The ratio of the sides' medians is the quotient of the two absolute values in a report. Its
  interval is the percentile bootstrap over blocks.
- The ratio of the means is for figures that were published as means. Its interval is Fieller's
  (1954): all ratios that a paired t-test does not reject. A bootstrap interval would be too narrow.
- The median of the blocks' ratios describes a typical block. It does not contain disturbances of
  whole blocks, so on a disturbed machine its interval is several times narrower. The interval comes
  from the bootstrap (BCa; Efron 1987). `signed_rank` has an exact one for the same purpose.

docs/explanation/statistics.md says how often each interval contains the true value on simulated
machines.

The medians of the bootstrap's resamples are computed without making the resamples. The trials of a
resample depend on the number of trials and on the seed, and not on the values. So the counts of
each trial in each resample are computed once for all samples of this length, of which a study has
hundreds. The counts, in the order of the values, give a resample's median. The medians are equal to
the last bit to those of `scipy.stats.bootstrap` with the same seed, as a test checks. SciPy takes
more than ten times as long, most of it to sort the resamples.
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
_SEED = 20140301  # fixed, so that the same values always give the same interval

_KEPT = 8
"""Lengths whose counts are cached. Ten trials take 100 kB."""


class Centre(StrEnum):
    """The average of the trials of a side."""

    MEDIAN = "median"
    MEAN = "mean"


@dataclass(frozen=True)
class Efficiency:
    """The fraction of the native performance that is left. Above 1 it is better than native."""

    value: Estimate
    """native / virtual if lower is better, or else virtual / native."""
    virtual: float
    native: float
    """Both absolute values, in the values' unit."""
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
    """The efficiency of a virtual side: 0.7561 for 1.69 us native and 2.235 us virtual.

    Single published values are allowed; their interval has a confidence of 0. Raises ValueError if
    the sides make no pairs, or if a value is not above zero.
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
    """median(ours) / median(theirs). Trial i of both ran in block i.

    A single pair has no interval, and `confidence` is 0. Raises ValueError if there are no pairs,
    or if the sides differ in length.
    """
    return best_ratio_estimate(ours, [theirs], lower_is_better=True, confidence=confidence)


def paired_ratio(ours: Values, theirs: Values) -> float:
    """The median of ours / theirs over the blocks. Raises the errors of `paired_ratio_estimate`."""
    return float(np.median(np.exp(differences(ours, theirs, Scale.RATIO))))


def paired_ratio_estimate(
    ours: Values, theirs: Values, *, confidence: float = CONFIDENCE
) -> Estimate:
    """The median of ours / theirs over the blocks, with the BCa interval of the bootstrap.

    A single pair has no interval, and `confidence` is 0. Raises ValueError if there are no pairs,
    if the sides differ in length, or if a value is not above zero.
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
            n_resamples=0,  # their medians are computed already
            bootstrap_result=resampled,
            confidence_level=confidence,
        )
    low, high = found.confidence_interval
    if np.isnan(low) or np.isnan(high):
        # If most values are equal, BCa has nothing to correct by. The percentile interval is
        # enough.
        outside = (1 - confidence) / 2
        low, high = np.quantile(medians, (outside, 1 - outside))
    return Estimate(value, float(low), float(high), confidence)


def mean_ratio_estimate(
    ours: Values, theirs: Values, *, confidence: float = CONFIDENCE
) -> Estimate:
    """mean(ours) / mean(theirs). Trial i of both ran in block i.

    A single pair has no interval, nor have sides so noisy that the mean of theirs could be zero.
    `confidence` is 0 then. Raises ValueError if there are no pairs, or if the sides differ in
    length.
    """
    left, right = as_pairs(ours, theirs)
    value = float(left.mean() / right.mean())
    if len(left) == 1:
        return Estimate(value, value, value, 0.0)
    covariance = np.cov(left, right) / len(left)
    squared = float(stats.t.isf((1 - confidence) / 2, len(left) - 1)) ** 2
    # The interval has the ratios r with d^2 <= t^2 var(d), d = mean(ours) - r mean(theirs): those
    # between the roots of a parabola.
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

    Each resample of the bootstrap picks its best candidate anew. The interval therefore covers that
    another candidate might have been the best. If `paired`, trial i of all sides ran in block i,
    and the bootstrap draws blocks; otherwise it draws each side's trials separately. Raises
    ValueError if there are no trials, or if paired sides differ in length.
    """
    best = np.min if lower_is_better else np.max
    return _ratio(ours, candidates, best, paired=paired, confidence=confidence)


def sum_ratio_estimate(
    ours: Values, parts: Sequence[Values], confidence: float = CONFIDENCE
) -> Estimate:
    """median(ours) / the sum of the parts' medians. The trials make no pairs.

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
    """median(ours) / combine(medians of the others)."""
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
    """The medians of `resamples` resamples of the values, drawn with replacement."""
    count = len(values)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    # Row k: the number of a resample's values that are among the k + 1 smallest.
    counts = _counts(count, resamples, seed)
    up_to = np.cumsum(counts[order], axis=0, dtype=counts.dtype)
    upper: Floats = ordered[_at_rank(up_to, count // 2)]
    if count % 2:
        return upper
    lower: Floats = ordered[_at_rank(up_to, count // 2 - 1)]
    return (lower + upper) / 2


def _at_rank(up_to: NDArray[Any], rank: int) -> NDArray[Any]:
    """The index, among the ordered values, of each resample's value of this rank."""
    return np.asarray((up_to <= rank).sum(axis=0, dtype=up_to.dtype))


@lru_cache(maxsize=_KEPT)
def _counts(count: int, resamples: int, seed: int) -> NDArray[Any]:
    """Counts of value i in resample j, of shape (count, resamples).

    They are drawn in SciPy's order, one resample after the other, and kept in the smallest integer
    type that their sum fits in.
    """
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    of_resample = count * np.arange(resamples)[:, np.newaxis]
    counted = np.bincount((drawn + of_resample).ravel(), minlength=resamples * count)
    small = counted.reshape(resamples, count).T.astype(np.min_scalar_type(count))
    found = np.ascontiguousarray(small)
    found.flags.writeable = False  # shared by all callers
    return found
