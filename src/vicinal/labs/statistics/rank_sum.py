"""Wilcoxon's rank-sum test (Mann and Whitney's), and its ratio, for sides that make no pairs.

An example is two studies on different days. The test asks whether a value of one side is as likely
to be above a value of the other side as below it. It cannot tell a difference from something that
slowed down a whole day. Blocks can (compare.py).

The estimate is Hodges and Lehmann's (1963): the median of all quotients of one of our values and
one of their values. Its interval contains all shifts that the test does not reject. Equal values
count against a difference. With ties a p-value is therefore too large rather than too small, and is
never small if the interval contains 1.
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
"""With more pairs of values, the statistic's distribution is approximated by a normal one."""


@dataclass(frozen=True)
class RankSum:
    """The rank-sum test of two sides, two-sided."""

    statistic: float
    """Mann and Whitney's U: pairs in which our value is above theirs. Equal values count half."""
    p_value: float
    ratio: Estimate
    """Ours / theirs, Hodges and Lehmann's estimate."""

    to_dict = asdict


@dataclass(frozen=True)
class UnpairedEquivalence:
    """Two one-sided tests of sides that make no pairs."""

    p_value: float
    """The p-value of equivalence, the larger of both."""
    interval: Estimate
    """The interval of the ratio, with a confidence of 1 - 2 alpha."""

    to_dict = asdict


def rank_sum(ours: Values, theirs: Values, confidence: float = CONFIDENCE) -> RankSum:
    """Test whether two sides differ if their trials make no pairs.

    The test is exact up to 50 trials of each side. Raises ValueError if a side has no values, or a
    value that is not above zero.
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
    """Test whether ours / theirs lies between 1 / (1 + margin) and 1 + margin; 0.03 is 3 %.

    Raises the errors of `rank_sum`, and ValueError if the margin is not above zero.
    """
    if margin <= 0:
        raise ValueError(f"a margin of {margin:g} is not above zero")
    found = _log_quotients(ours, theirs)
    at_most = _at_most(*found.shape)
    reach = float(np.log1p(margin))
    above, below = _one_sided(found + reach, at_most)[1], _one_sided(found - reach, at_most)[0]
    return UnpairedEquivalence(max(above, below), _ratio(found, at_most, 1 - 2 * alpha))


def least_rank_sum_p_value(ours: int, theirs: int) -> float:
    """The smallest p-value of these numbers of trials: all of one side are above the other."""
    return min(1.0, 2 / comb(ours + theirs, ours))


def _log_quotients(ours: Values, theirs: Values) -> Floats:
    """Log quotients, of shape (our values, their values)."""
    left, right = (as_samples(side).astype(np.float64) for side in (ours, theirs))
    for side in (left, right):
        if (side <= 0).any():
            raise ValueError(f"{side[side <= 0][0]:g} is not above zero, so it has no ratio")
    return np.log(left)[:, np.newaxis] - np.log(right)


def _one_sided(found: Floats, at_most: Floats) -> tuple[float, float]:
    """P-values of ours being less, and of ours being greater. Equal values count against both."""
    nothing = 1e-12 * float(np.abs(found).max())
    less = at_most[np.count_nonzero(found >= -nothing)]
    greater = at_most[np.count_nonzero(found <= nothing)]
    return float(less), float(greater)


def _ratio(found: Floats, at_most: Floats, confidence: float) -> Estimate:
    """The ratio. With few values its interval is the widest, with its real confidence."""
    ordered = np.sort(found, axis=None)
    rank = max(int(np.searchsorted(at_most, (1 - confidence) / 2, side="right")), 1)
    reached = max(0.0, 1 - 2 * float(at_most[rank - 1]))
    value, low, high = (
        float(np.exp(end)) for end in (np.median(ordered), ordered[rank - 1], ordered[-rank])
    )
    return Estimate(value, low, high, reached)


@lru_cache(maxsize=256)
def _at_most(ours: int, theirs: int) -> Floats:
    """P(U <= u) for u = 0, 1, ..., if nothing differs and no values are equal.

    SciPy computes it from values. So for each u there are values with this U: `u // theirs` of ours
    are above all of theirs, and one more is above the rest.
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
