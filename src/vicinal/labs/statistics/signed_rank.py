"""Wilcoxon's signed-rank test, and the ratio or difference that belongs to it.

Studies claim differences by this test. It has one condition: if nothing differs, the differences of
pairs are symmetric. A study fulfils it, because the side that runs first in a block is drawn at
random. The test then keeps its level with any noise of the machine. A few interrupted trials, which
can hide any difference from a t-test, only have ranks like all other trials.

The estimate is Hodges and Lehmann's (1963): the median of the means of all pairs of differences.
Without ties, its interval contains all shifts that the test does not reject, because the sum of the
ranks above a shift is the number of these means above it. With ties, or with pairs that do not
differ, the exact test has another distribution, and may reject a shift that the interval contains.
So claims are made by `claim_p_value`, which is never small if the interval contradicts the claim.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.least_pairs import ALPHA, signed_rank_pairs
from vicinal.labs.statistics.samples import Floats, Scale, Values, differences

__all__ = [
    "ALPHA",
    "Alternative",
    "SignedRank",
    "claim_p_value",
    "hodges_lehmann",
    "signed_rank",
    "signed_rank_p_values",
    "signed_rank_pairs",
    "signed_rank_test",
]

Alternative = Literal["two-sided", "greater", "less"]
"""The alternative hypothesis about the centre of differences, in SciPy's words."""

_EXACT = 50
"""With more differences, the rank sum's distribution is approximated by a normal one."""


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test, two-sided."""

    statistic: float
    """The smaller of the rank sums of the differences above and below zero."""
    differing: int
    """Number of pairs that differ. The test ignores equal pairs."""
    p_value: float
    """From `claim_p_value`: of the exact test, or with ties of the interval if that is larger."""
    shift: Estimate
    """Hodges and Lehmann's estimate: ratio ours / theirs, or difference in the values' unit."""

    to_dict = asdict


def signed_rank(
    ours: Values,
    theirs: Values,
    scale: Scale = Scale.RATIO,
    confidence: float = CONFIDENCE,
) -> SignedRank:
    """Test whether two sides differ. Trial i of both ran in block i.

    The test is exact up to 50 pairs, also with ties. With more pairs it uses the normal
    approximation. Raises ValueError if there are no pairs.
    """
    found = differences(ours, theirs, scale, method="Wilcoxon's test")
    statistic, p_value = signed_rank_test(found)[0], claim_p_value(found)
    shift = hodges_lehmann(found, confidence)
    if scale is Scale.RATIO:
        low, value, high = (float(np.exp(end)) for end in (shift.low, shift.value, shift.high))
        shift = Estimate(value, low, high, shift.confidence)
    return SignedRank(statistic, int(np.count_nonzero(found)), p_value, shift)


def signed_rank_test(values: Floats, alternative: Alternative = "two-sided") -> tuple[float, float]:
    """The statistic and the p-value of differences, as SciPy defines them."""
    values = values[values != 0]
    count = len(values)
    if count == 0:
        return 0.0, 1.0
    ranks = _ranks(_merged(np.abs(values)))
    if count > _EXACT:
        from scipy import stats  # takes a second to load

        result = stats.wilcoxon(np.sign(values) * ranks, alternative=alternative)
        return float(result.statistic), float(result.pvalue)
    doubled = (2 * ranks).astype(int)  # ties share a rank, which may end in one half
    above, below = int(doubled[values > 0].sum()), int(doubled[values < 0].sum())
    at_most = _rank_sums(tuple(np.sort(doubled).tolist()))
    p_value = _p_value(float(at_most[above]), float(at_most[below]), alternative)
    return (min(above, below) if alternative == "two-sided" else above) / 2, p_value


def claim_p_value(values: Floats, alternative: Alternative = "two-sided") -> float:
    """The p-value for claims about differences, from both the test and the interval.

    Without ties both agree, and this is the p-value of `signed_rank_test`. With ties it is the
    larger of this p-value and the smallest level whose interval excludes zero. So the interval of a
    level shows each claim at the level. A mean of a pair that is zero except for rounding counts
    against the claim.
    """
    means = _means_of_pairs(values)
    nothing = 1e-12 * np.abs(values).max()
    at_most = _sums_without_ties(len(values))
    less = float(at_most[np.count_nonzero(means >= -nothing)])
    greater = float(at_most[np.count_nonzero(means <= nothing)])
    return max(signed_rank_test(values, alternative)[1], _p_value(less, greater, alternative))


def hodges_lehmann(values: Floats, confidence: float = CONFIDENCE) -> Estimate:
    """The centre of symmetry of differences, with an interval between two means of pairs.

    As with a median, fewer than six values do not reach 95 %. The widest interval is returned, and
    `confidence` has its real confidence.
    """
    means = np.sort(_means_of_pairs(values))
    at_most = _sums_without_ties(len(values))
    rank = max(int(np.searchsorted(at_most, (1 - confidence) / 2, side="right")), 1)
    reached = 1 - 2 * float(at_most[rank - 1])
    low, high = float(means[rank - 1]), float(means[-rank])
    return Estimate(float(np.median(means)), low, high, max(0.0, reached))


def signed_rank_p_values(values: Floats) -> Floats:
    """The p-values of many studies: differences without ties, of shape (studies, pairs)."""
    from scipy import stats

    return np.asarray(stats.wilcoxon(values, axis=-1).pvalue)


def _p_value(less: float, greater: float, alternative: Alternative) -> float:
    if alternative == "two-sided":
        return min(1.0, 2 * min(less, greater))
    return less if alternative == "less" else greater


def _ranks(values: Floats) -> Floats:
    """Ranks from 1. Equal values share the mean of their ranks."""
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = np.cumsum(count) - (count - 1) / 2
    return shared[inverse]


def _means_of_pairs(values: Floats) -> Floats:
    """Walsh averages: the means of all pairs of values, including each value with itself."""
    first, second = np.triu_indices(len(values))
    return (values[first] + values[second]) / 2


@lru_cache(maxsize=256)
def _sums_without_ties(count: int) -> Floats:
    """P(sum of the ranks above zero <= s) for s = 0, 1, ..., of `count` differences."""
    if count <= _EXACT:
        return _rank_sums(tuple(range(1, count + 1)))
    pairs = count * (count + 1) / 2
    spread = np.sqrt(pairs * (2 * count + 1) / 12)
    return np.asarray(special.ndtr((np.arange(pairs + 1) - pairs / 2) / spread))


@lru_cache(maxsize=256)
def _rank_sums(ranks: tuple[int, ...]) -> Floats:
    """P(sum of the ranks above zero <= s) for s = 0, 1, ..., if both signs are equally likely.

    SciPy has this distribution only for ranks without ties, and draws random signs for others.
    """
    ways = np.ones(1)
    for rank in ranks:
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    return np.cumsum(ways) / 2.0 ** len(ranks)


def _merged(sizes: Floats) -> Floats:
    """Numbers in the order of the sizes. Sizes that differ only by rounding are ties."""
    order = np.argsort(sizes)
    steps = np.diff(sizes[order], prepend=-np.inf) > 1e-9 * sizes[order]
    groups = np.empty(len(sizes))
    groups[order] = np.cumsum(steps)
    return groups
