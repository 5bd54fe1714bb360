"""Two sides of a study: whether they differ, and by how much.

Wilcoxon's signed-rank test on ratios decides whether a difference is claimed (signed_rank.py says
why), after its p-value is corrected for the other comparisons of its family (correct.py). The
result also has the paired t-test, because the published tables used it.
"""

from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.ratio import paired_ratio_estimate, ratio_estimate
from vicinal.labs.statistics.samples import Scale, Values, differences, is_constant
from vicinal.labs.statistics.signed_rank import ALPHA, SignedRank, signed_rank, signed_rank_pairs


@dataclass(frozen=True)
class PairedT:
    """Student's paired t-test, two-sided."""

    statistic: float | None
    """None if all pairs differ by the same amount: their spread, the divisor, is zero then."""
    degrees_of_freedom: int
    p_value: float
    mean: Estimate
    """The mean of the differences, in their unit. For ratios, the ratio of the geometric means."""

    to_dict = asdict


@dataclass(frozen=True)
class Comparison:
    """Everything that a row of a report says about two sides."""

    trials: int
    ours: Estimate
    theirs: Estimate
    """Medians of the trials, in the values' unit."""
    ratio: Estimate
    """median(ours) / median(theirs), the quotient of the two figures above."""
    paired_ratio: Estimate
    """The median of the blocks' ratios, with its BCa bootstrap interval."""
    wilcoxon: SignedRank
    """The test of the blocks' ratios. Its `shift` is a ratio that agrees with the p-value."""
    t: PairedT
    """The t-test of the differences, as in published tables."""

    to_dict = asdict

    @property
    def p_value(self) -> float:
        """The p-value of the signed-rank test, not corrected for other comparisons."""
        return self.wilcoxon.p_value


def compare(
    ours: Values, theirs: Values, *, alpha: float = ALPHA, comparisons: int = 1
) -> Comparison:
    """Compare two sides. Trial i of both ran in block i, and all values must be above zero.

    `comparisons` is the number of comparisons in the family. Holm's procedure tests the first claim
    at alpha / comparisons, which needs more trials. Raises TooFewTrialsError if no outcome of this
    number of trials could be claimed, and ValueError if the sides make no pairs or a value is not
    above zero.
    """
    method = f"Wilcoxon's test at {alpha:g}"
    if comparisons > 1:
        method += f" in a family of {comparisons} comparisons"
    needed = signed_rank_pairs(alpha / comparisons)
    differences(ours, theirs, Scale.RATIO, method=method, needed=needed)  # only checks
    confidence = 1 - alpha
    return Comparison(
        trials=len(ours),
        ours=median_estimate(ours, confidence),
        theirs=median_estimate(theirs, confidence),
        ratio=ratio_estimate(ours, theirs, confidence=confidence),
        paired_ratio=paired_ratio_estimate(ours, theirs, confidence=confidence),
        wilcoxon=signed_rank(ours, theirs, Scale.RATIO, confidence),
        t=paired_t(ours, theirs, Scale.DIFFERENCE, confidence),
    )


def paired_t(
    ours: Values,
    theirs: Values,
    scale: Scale = Scale.DIFFERENCE,
    confidence: float = CONFIDENCE,
) -> PairedT:
    """Student's paired t-test, two-sided. Raises TooFewTrialsError below two pairs."""
    found = differences(ours, theirs, scale, method="a paired t-test", needed=2)
    freedom = len(found) - 1
    mean = float(found.mean())
    if is_constant(found):
        low = high = mean
        statistic, p_value = None, 1.0 if mean == 0 else 0.0
    else:
        result = stats.ttest_1samp(found, 0)
        interval = result.confidence_interval(confidence)
        low, high = float(interval.low), float(interval.high)
        statistic, p_value = float(result.statistic), float(result.pvalue)
    if scale is Scale.RATIO:
        mean, low, high = (float(np.exp(value)) for value in (mean, low, high))
    return PairedT(statistic, freedom, p_value, Estimate(mean, low, high, confidence))
