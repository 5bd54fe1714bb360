"""Wilcoxon's signed-rank test, and the ratio or difference that it belongs to.

This is the test by which differences are claimed. It asks for one thing alone, that the differences
of pairs are symmetric where nothing differs, and a study makes that so: which side runs first in a
block is drawn at random. Whatever the machine's noise looks like, the test keeps to its level then,
and a few interrupted trials, which can hide any difference from a t-test, have ranks as all others
have.

The estimate is Hodges and Lehmann's (1963), the median of the means of all pairs of differences.
Its interval has all shifts that the test does not reject: the sum of the ranks above a shift is the
number of those means above it. That is so without ties. With ties, and with pairs that do not
differ, the exact test asks another distribution and may reject what the interval holds; so claims
are made by `claim_p_value`, which is never small beside an interval that says otherwise.
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
"""Of the centre of differences, as SciPy has it: it is not zero, it is above, it is below."""

_EXACT = 50
"""With more differences than these, the distribution of the ranks' sum is taken for normal."""


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test, two-sided."""

    statistic: float
    """The smaller one of the rank sums of the differences above and below zero."""
    differing: int
    """Pairs that differ at all; the others say nothing to the test."""
    p_value: float
    """That of `claim_p_value`: the exact test's, or with ties the interval's if that is larger."""
    shift: Estimate
    """Hodges and Lehmann's: a ratio ours / theirs, or a difference in the values' unit."""

    to_dict = asdict


def signed_rank(
    ours: Values,
    theirs: Values,
    scale: Scale = Scale.RATIO,
    confidence: float = CONFIDENCE,
) -> SignedRank:
    """Test whether two sides differ, of which trial i ran in block i.

    Exact to 50 pairs, with ties too; with more pairs the normal approximation is used. Raises
    ValueError if there are no pairs.
    """
    found = differences(ours, theirs, scale, method="Wilcoxon's test")
    statistic, p_value = signed_rank_test(found)[0], claim_p_value(found)
    shift = hodges_lehmann(found, confidence)
    if scale is Scale.RATIO:
        low, value, high = (float(np.exp(end)) for end in (shift.low, shift.value, shift.high))
        shift = Estimate(value, low, high, shift.confidence)
    return SignedRank(statistic, int(np.count_nonzero(found)), p_value, shift)


def signed_rank_test(values: Floats, alternative: Alternative = "two-sided") -> tuple[float, float]:
    """The statistic and the p-value of differences, as SciPy has them."""
    values = values[values != 0]
    count = len(values)
    if count == 0:
        return 0.0, 1.0
    ranks = _ranks(_merged(np.abs(values)))
    if count > _EXACT:
        from scipy import stats  # which takes a second to load

        result = stats.wilcoxon(np.sign(values) * ranks, alternative=alternative)
        return float(result.statistic), float(result.pvalue)
    doubled = (2 * ranks).astype(int)  # ties share a rank that may be half a number
    above, below = int(doubled[values > 0].sum()), int(doubled[values < 0].sum())
    at_most = _rank_sums(tuple(np.sort(doubled).tolist()))
    p_value = _p_value(float(at_most[above]), float(at_most[below]), alternative)
    return (min(above, below) if alternative == "two-sided" else above) / 2, p_value


def claim_p_value(values: Floats, alternative: Alternative = "two-sided") -> float:
    """The p-value by which something is claimed of differences: it asks test and interval.

    Without ties both are the same, and this is the p-value of `signed_rank_test`. With ties it is
    the larger one of that and the least level whose interval lies beyond zero, so what it claims at
    a level, the interval of that level shows. A mean of a pair that is zero but for rounding speaks
    against the claim.
    """
    means = _means_of_pairs(values)
    nothing = 1e-12 * np.abs(values).max()
    at_most = _sums_without_ties(len(values))
    less = float(at_most[np.count_nonzero(means >= -nothing)])
    greater = float(at_most[np.count_nonzero(means <= nothing)])
    return max(signed_rank_test(values, alternative)[1], _p_value(less, greater, alternative))


def hodges_lehmann(values: Floats, confidence: float = CONFIDENCE) -> Estimate:
    """The centre of symmetry of differences, between two of the means of their pairs.

    As with a median, fewer than six values reach no 95 %; the widest interval is given then, and
    `confidence` says what it is worth.
    """
    means = np.sort(_means_of_pairs(values))
    at_most = _sums_without_ties(len(values))
    rank = max(int(np.searchsorted(at_most, (1 - confidence) / 2, side="right")), 1)
    reached = 1 - 2 * float(at_most[rank - 1])
    low, high = float(means[rank - 1]), float(means[-rank])
    return Estimate(float(np.median(means)), low, high, max(0.0, reached))


def signed_rank_p_values(values: Floats) -> Floats:
    """The p-values of many studies at once: a row of differences each, without ties."""
    from scipy import stats

    return np.asarray(stats.wilcoxon(values, axis=-1).pvalue)


def _p_value(less: float, greater: float, alternative: Alternative) -> float:
    if alternative == "two-sided":
        return min(1.0, 2 * min(less, greater))
    return less if alternative == "less" else greater


def _ranks(values: Floats) -> Floats:
    """From 1; values that are equal share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = np.cumsum(count) - (count - 1) / 2
    return shared[place]


def _means_of_pairs(values: Floats) -> Floats:
    """Walsh's averages: the means of all pairs of values, each with itself too."""
    first, second = np.triu_indices(len(values))
    return (values[first] + values[second]) / 2


@lru_cache(maxsize=256)
def _sums_without_ties(count: int) -> Floats:
    """P(sum of the ranks above zero <= s) for s = 0, 1, ... of so many differences."""
    if count <= _EXACT:
        return _rank_sums(tuple(range(1, count + 1)))
    pairs = count * (count + 1) / 2
    spread = np.sqrt(pairs * (2 * count + 1) / 12)
    return np.asarray(special.ndtr((np.arange(pairs + 1) - pairs / 2) / spread))


@lru_cache(maxsize=256)
def _rank_sums(ranks: tuple[int, ...]) -> Floats:
    """P(sum of the ranks above zero <= s) for s = 0, 1, ..., where each sign is as likely.

    SciPy has this distribution for ranks without ties alone, and draws signs for others.
    """
    ways = np.ones(1)
    for rank in ranks:
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    return np.cumsum(ways) / 2.0 ** len(ranks)


def _merged(sizes: Floats) -> Floats:
    """Numbers in the same order, equal for sizes that differ by rounding alone: those are ties."""
    order = np.argsort(sizes)
    steps = np.diff(sizes[order], prepend=-np.inf) > 1e-9 * sizes[order]
    groups = np.empty(len(sizes))
    groups[order] = np.cumsum(steps)
    return groups
