"""Medians, ratios, and how sure one can be of them.

The unit of replication is the trial: a fresh start of the program. Nothing here assumes
that times are normally distributed, for they are not.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
_RESAMPLES = 9999
_SEED = 20140301  # the same values always give the same interval


@dataclass(frozen=True)
class Estimate:
    """A median or a ratio of medians, with an interval that holds the true one."""

    value: float
    low: float
    high: float
    confidence: float
    """Probability that such an interval holds the true value; 0 where there is only one trial."""

    to_dict = asdict


def median_estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The median, between two order statistics.

    With fewer than six values no such interval reaches 95 %; the widest one is given then,
    and `confidence` says what it is worth (five values: 93.75 %).
    Raises ValueError if there are no values.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    count = len(ordered)
    if count == 0:
        raise ValueError("no values")
    # P(the median lies below the k-th smallest) = P(at most k - 1 of n values lie below it).
    outside = stats.binom.cdf(np.arange(count), count, 0.5)
    usable = int(np.searchsorted(outside, (1 - confidence) / 2, side="right"))
    rank = max(usable - 1, 0)
    return Estimate(
        value=float(np.median(ordered)),
        low=float(ordered[rank]),
        high=float(ordered[count - 1 - rank]),
        confidence=max(0.0, 1 - 2 * float(outside[rank])),
    )


def ratio_estimate(
    ours: Sequence[float], theirs: Sequence[float], confidence: float = CONFIDENCE
) -> Estimate:
    """median(ours) / median(theirs), where trial i of both ran one after the other.

    The interval comes from a percentile bootstrap over such pairs of trials, so that what
    slowed both sides of a pair down does not count. With a single pair there is none, and
    `confidence` is 0. Raises ValueError if there are no pairs or if the sides differ in length.
    """
    return best_ratio_estimate(ours, [theirs], lower_is_better=True, confidence=confidence)


def best_ratio_estimate(
    ours: Sequence[float],
    candidates: Sequence[Sequence[float]],
    *,
    lower_is_better: bool,
    paired: bool = True,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """median(ours) / the best of the candidates' medians.

    Each resample of the bootstrap picks its best candidate anew, so that the interval has
    in it that another one might have been the best. Trial i of all sides ran in round i if
    `paired`, and rounds are drawn; otherwise each side's trials are drawn by themselves.
    Raises ValueError if there are no trials, or if paired sides differ in length.
    """
    best = np.min if lower_is_better else np.max
    return _ratio(ours, candidates, best, paired=paired, confidence=confidence)


def sum_ratio_estimate(
    ours: Sequence[float], parts: Sequence[Sequence[float]], confidence: float = CONFIDENCE
) -> Estimate:
    """median(ours) / the sum of the parts' medians, where trials make no pairs.

    Raises ValueError if a side has no trials.
    """
    return _ratio(ours, parts, np.sum, paired=False, confidence=confidence)


def _ratio(
    ours: Sequence[float],
    others: Sequence[Sequence[float]],
    combine: Callable[..., np.ndarray],
    *,
    paired: bool,
    confidence: float,
) -> Estimate:
    """median(ours) / what `combine` makes of the others' medians."""
    sides = [np.asarray(side, dtype=float) for side in (ours, *others)]
    lengths = {len(side) for side in sides}
    if 0 in lengths or len(sides) < 2 or (paired and len(lengths) > 1):
        raise ValueError(f"{sorted(lengths)} trials do not make pairs")

    def ratio(*drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        medians = [np.median(side, axis=axis) for side in drawn]
        quotient: np.ndarray = medians[0] / combine(np.stack(medians[1:]), axis=0)
        return quotient

    value = float(ratio(*sides))
    if lengths == {1}:
        return Estimate(value, value, value, 0.0)
    result = stats.bootstrap(
        sides,
        ratio,
        paired=paired,
        vectorized=True,
        method="percentile",
        n_resamples=_RESAMPLES,
        confidence_level=confidence,
        rng=np.random.default_rng(_SEED),
    )
    interval = result.confidence_interval
    return Estimate(value, float(interval.low), float(interval.high), confidence)
