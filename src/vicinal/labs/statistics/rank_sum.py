"""Wilcoxon's rank-sum test (Mann and Whitney's), and the ratio that it belongs to: for two sides
whose trials make no pairs, as those of two studies on different days.

It asks whether a value of one side is as likely to be above one of the other side as below it.
Nothing that slowed a whole day down can be told from a difference here: that is what blocks are
for (compare.py).

The estimate is Hodges and Lehmann's (1963), the median of all quotients of a value of ours and one
of theirs. Its interval has all shifts that the test does not reject. Two equal values speak against
a difference, so that with ties a p-value is rather too large, and never small beside an interval
that holds 1.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from math import comb

import numpy as np
from scipy import stats

from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.samples import Floats, Values, as_samples
from vicinal.labs.statistics.signed_rank import ALPHA

_EXACT = 2500
"""With more pairs of values than these, the distribution of the statistic is taken for normal."""


@dataclass(frozen=True)
class RankSum:
    """The rank-sum test of two sides, two-sided."""

    statistic: float
    """Mann and Whitney's U: in how many pairs our value is above theirs, halves for equal ones."""
    p_value: float
    ratio: Estimate
    """Ours / theirs, Hodges and Lehmann's."""

    to_dict = asdict


@dataclass(frozen=True)
class UnpairedEquivalence:
    """Two one-sided tests of sides that make no pairs."""

    p_value: float
    """Of being equivalent: the larger one of both."""
    interval: Estimate
    """Of the ratio, with a confidence of 1 - 2 alpha."""

    to_dict = asdict


def rank_sum(ours: Values, theirs: Values, confidence: float = CONFIDENCE) -> RankSum:
    """Test whether two sides differ, whose trials make no pairs.

    Exact to 50 trials of each side. Raises ValueError if a side has no values, or one that is not
    above zero.
    """
    found = _log_quotients(ours, theirs)
    at_most = _at_most(*found.shape)
    less, greater = _one_sided(found, at_most)
    return RankSum(
        statistic=float(np.count_nonzero(found > 0) + np.count_nonzero(found == 0) / 2),
        p_value=min(1.0, 2 * min(less, greater)),
        ratio=_ratio(found, at_most, confidence),
    )


def unpaired_equivalence(
    ours: Values, theirs: Values, *, margin: float, alpha: float = ALPHA
) -> UnpairedEquivalence:
    """Whether ours / theirs lies between 1 / (1 + margin) and 1 + margin; 0.03 is 3 %.

    Raises ValueError as rank_sum() does, and for a margin that is not above zero.
    """
    if margin <= 0:
        raise ValueError(f"a margin of {margin:g} is not above zero")
    found = _log_quotients(ours, theirs)
    at_most = _at_most(*found.shape)
    reach = float(np.log1p(margin))
    above, below = _one_sided(found + reach, at_most)[1], _one_sided(found - reach, at_most)[0]
    return UnpairedEquivalence(max(above, below), _ratio(found, at_most, 1 - 2 * alpha))


def least_rank_sum_p_value(ours: int, theirs: int) -> float:
    """The smallest p-value of so many trials: all of one side are above all of the other."""
    return min(1.0, 2 / comb(ours + theirs, ours))


def _log_quotients(ours: Values, theirs: Values) -> Floats:
    """A row for each of our values, a column for each of theirs."""
    left, right = (as_samples(side).astype(np.float64) for side in (ours, theirs))
    for side in (left, right):
        if (side <= 0).any():
            raise ValueError(f"{side[side <= 0][0]:g} is not above zero, so it has no ratio")
    return np.log(left)[:, np.newaxis] - np.log(right)


def _one_sided(found: Floats, at_most: Floats) -> tuple[float, float]:
    """P-values of ours being less, and of their being greater. Equal values speak against both."""
    nothing = 1e-12 * float(np.abs(found).max())
    less = at_most[np.count_nonzero(found >= -nothing)]
    greater = at_most[np.count_nonzero(found <= nothing)]
    return float(less), float(greater)


def _ratio(found: Floats, at_most: Floats, confidence: float) -> Estimate:
    """With few values the widest interval that there is, and `confidence` says what it is worth."""
    ordered = np.sort(found, axis=None)
    rank = max(int(np.searchsorted(at_most, (1 - confidence) / 2, side="right")), 1)
    reached = max(0.0, 1 - 2 * float(at_most[rank - 1]))
    value, low, high = (
        float(np.exp(end)) for end in (np.median(ordered), ordered[rank - 1], ordered[-rank])
    )
    return Estimate(value, low, high, reached)


@lru_cache(maxsize=256)
def _at_most(ours: int, theirs: int) -> Floats:
    """P(U <= u) for u = 0, 1, ..., where nothing differs and no values are equal.

    SciPy gives it for values, so for each u there are some that have it: `u // theirs` of ours are
    above all of theirs, and one more is above the rest.
    """
    pairs = ours * theirs
    if pairs > _EXACT:
        spread = np.sqrt(pairs * (ours + theirs + 1) / 12)
        return np.asarray(stats.norm.cdf(np.arange(pairs + 1) + 0.5, pairs / 2, spread))
    below = np.clip(np.arange(pairs + 1)[:, np.newaxis] - theirs * np.arange(ours), 0, theirs)
    values = below + 0.5 + np.arange(ours) / (2 * ours + 1)
    others = np.broadcast_to(np.arange(1, theirs + 1), (pairs + 1, theirs))
    found = stats.mannwhitneyu(values, others, alternative="less", method="exact", axis=-1)
    return np.asarray(found.pvalue)
