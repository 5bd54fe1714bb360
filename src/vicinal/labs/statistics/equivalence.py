"""Equivalence of two sides. A test that finds no difference does not show equivalence.

Two one-sided tests (TOST; Schuirmann 1987) ask whether the ratio is above the lower end of a
margin, and whether it is below the upper end. If both hold, the ratio lies within the margin. This
is the case if the 90 % interval (1 - 2 alpha) lies within the margin. If ties make ranks and
interval disagree, nothing is claimed, so no interval of an equivalent ratio exceeds the margin.

Ratios are tested by Wilcoxon's signed ranks, as claims of a difference are. Differences in the
values' unit are tested by Student's t, as in the literature.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from vicinal.labs.statistics.compare import paired_t
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.samples import Floats, Scale, Values, differences, is_constant
from vicinal.labs.statistics.signed_rank import ALPHA, claim_p_value, signed_rank, signed_rank_pairs


class Verdict(StrEnum):
    """What both tests together say about two sides."""

    DIFFERENT = "different"
    """The sides differ, possibly by more than the margin."""
    EQUIVALENT = "equivalent"
    """Any difference is smaller than the margin, and none was shown."""
    NEGLIGIBLE = "different, but by less than the margin"
    UNDECIDED = "undecided"
    """Neither was shown. More trials may show one."""


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of pairs."""

    low: float
    high: float
    """Ends of the margin: ratios, or differences in the values' unit."""
    p_low: float
    p_high: float
    """P-values of being above `low`, and of being below `high`."""
    interval: Estimate
    """The interval of the ratio or of the mean difference, with a confidence of 1 - 2 alpha."""
    equivalent: bool
    different: bool
    """Whether the two-sided test at alpha finds a difference."""

    to_dict = asdict

    @property
    def p_value(self) -> float:
        """The p-value of equivalence, the larger of both."""
        return max(self.p_low, self.p_high)

    @property
    def verdict(self) -> Verdict:
        if self.equivalent:
            return Verdict.NEGLIGIBLE if self.different else Verdict.EQUIVALENT
        return Verdict.DIFFERENT if self.different else Verdict.UNDECIDED


def equivalence(
    ours: Values, theirs: Values, *, margin: float, alpha: float = ALPHA
) -> Equivalence:
    """Test whether ours / theirs lies between 1 / (1 + margin) and 1 + margin.

    A margin of 0.03 is 3 %. Swapping the sides does not change the result. Raises
    TooFewTrialsError if no outcome of this number of trials could show equivalence, and ValueError
    if a value or the margin is not above zero.
    """
    ratios = _ratios(ours, theirs, margin, alpha)
    p_low, p_high = _one_sided(ratios, margin)
    return Equivalence(
        low=1 / (1 + margin),
        high=1 + margin,
        p_low=p_low,
        p_high=p_high,
        interval=signed_rank(ours, theirs, Scale.RATIO, 1 - 2 * alpha).shift,
        equivalent=max(p_low, p_high) <= alpha,
        different=claim_p_value(ratios) <= alpha,
    )


def equivalence_p_value(
    ours: Values, theirs: Values, *, margin: float, alpha: float = ALPHA
) -> float:
    """Only the p-value of `equivalence`, for the many tests of a study. Raises the same errors."""
    return max(_one_sided(_ratios(ours, theirs, margin, alpha), margin))


def equivalent_difference(
    ours: Values, theirs: Values, *, low: float, high: float, alpha: float = ALPHA
) -> Equivalence:
    """Test whether the mean of ours - theirs lies between two values in their unit.

    Raises TooFewTrialsError below two pairs, and ValueError if `low` is not below `high`.
    """
    if low >= high:
        raise ValueError(f"a margin from {low:g} to {high:g} has nothing in it")
    found = differences(ours, theirs, Scale.DIFFERENCE, method="an equivalence test", needed=2)
    if is_constant(found):
        p_low, p_high = float(found.mean() <= low), float(found.mean() >= high)
    else:
        p_low = float(stats.ttest_1samp(found, low, alternative="greater").pvalue)
        p_high = float(stats.ttest_1samp(found, high, alternative="less").pvalue)
    two_sided = paired_t(ours, theirs, Scale.DIFFERENCE, confidence=1 - 2 * alpha)
    return Equivalence(
        low=low,
        high=high,
        p_low=p_low,
        p_high=p_high,
        interval=two_sided.mean,
        equivalent=max(p_low, p_high) <= alpha,
        different=two_sided.p_value <= alpha,
    )


def _ratios(ours: Values, theirs: Values, margin: float, alpha: float) -> Floats:
    """Logarithms of the pairs' ratios. Raises ValueError if the margin makes no test."""
    if margin <= 0:
        raise ValueError(f"a margin of {margin:g} is not above zero")
    return differences(
        ours,
        theirs,
        Scale.RATIO,
        method=f"an equivalence test at {alpha:g}",
        needed=signed_rank_pairs(alpha, sides=1),
    )


def _one_sided(ratios: Floats, margin: float) -> tuple[float, float]:
    """P-values of being above the margin's lower end, and below its upper end."""
    reach = float(np.log1p(margin))
    return claim_p_value(ratios + reach, "greater"), claim_p_value(ratios - reach, "less")
