"""Early stopping of studies that keeps the probability of errors.

A study that tests after each block, and stops at the first p-value below 0.05, finds a difference
where there is none in 23 of 100 studies of up to 40 blocks. So the looks at the data are fixed
before the study, and each look spends a part of the allowed error (Lan and DeMets 1983, with the
spending function that gives boundaries like Pocock's 1977). With five looks, each tests at about
0.015 instead of 0.05. Jennison and Turnbull (1989) derive *repeated confidence intervals*: with
probability 1 - alpha, the intervals of all looks contain the true ratio. So a study may stop for
any reason that the intervals give, and its last interval is valid:

- the interval does not contain 1: the sides differ;
- the interval lies within the margin: the sides are equivalent;
- the interval is as narrow as requested;
- the look is the last one, the cap: nothing was decided.

The boundaries are Pocock's and not O'Brien and Fleming's, because differences of virtualization are
often large, and then the first look is enough. The price is the last look: it tests at 0.017
instead of 0.05, and needs about a fifth more trials than a study without looks.

Each look's interval comes from Wilcoxon's signed-rank test (signed_rank.py) at the level of the
look. The levels are those of the normal distribution, which rank sums approach. The test is exact
at each look, and with few trials never reaches its level.
tests/python/statistics/test_statistics_stopping.py simulates the errors on quiet and on disturbed
machines.

Several comparisons that stop together share the error equally (Bonferroni). Holm's order would need
all p-values at once, but comparisons end at different looks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from scipy import optimize, stats

from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.samples import Scale, TooFewTrialsError, Values
from vicinal.labs.statistics.signed_rank import ALPHA, signed_rank, signed_rank_pairs

_NODES = 201
"""Nodes of the numerical integration. Twice as many change no boundary by 1e-9."""


class Reason(StrEnum):
    """Why a study stopped."""

    DIFFERENT = "different"
    EQUIVALENT = "equivalent"
    PRECISE = "precise enough"
    CAP = "cap reached"


@dataclass(frozen=True)
class Rule:
    """When a study looks at its data, and what ends it.

    Raises ValueError if the looks do not grow, and TooFewTrialsError if the first look is too early
    to find anything.
    """

    looks: tuple[int, ...]
    """Numbers of blocks after which the study looks. The last number is the cap."""
    alpha: float = ALPHA
    comparisons: int = 1
    """Number of comparisons that are watched at the same time. They share alpha."""
    margin: float | None = None
    """0.03: sides within 3 % of each other are equivalent. None: equivalence ends no study."""
    precision: float | None = None
    """0.01: an interval of at most 1 % to each side ends the study. None: precision ends none."""

    to_dict = asdict

    def __post_init__(self) -> None:
        if not self.looks or self.looks[0] < 1 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks after {self.looks} blocks do not grow")
        needed = signed_rank_pairs(self.levels[0])
        if self.looks[0] < needed:
            raise TooFewTrialsError(f"a first look at {self.levels[0]:.2g}", self.looks[0], needed)

    @property
    def cap(self) -> int:
        """The largest number of blocks."""
        return self.looks[-1]

    @property
    def levels(self) -> tuple[float, ...]:
        """The two-sided level of each look."""
        share = self.alpha / self.comparisons
        return tuple(float(2 * stats.norm.sf(bound)) for bound in boundaries(self.looks, share))


def even_rule(
    cap: int,
    *,
    looks: int = 5,
    alpha: float = ALPHA,
    comparisons: int = 1,
    margin: float | None = None,
    precision: float | None = None,
) -> Rule:
    """Evenly spaced looks, from the earliest that can find a difference to the cap.

    If the cap leaves no room for an early look, the cap is the only look. Raises TooFewTrialsError
    if the cap is too early as well.
    """
    for first in range(signed_rank_pairs(alpha / comparisons), cap):
        blocks = tuple(sorted({int(block) for block in np.linspace(first, cap, looks).round()}))
        try:
            return Rule(blocks, alpha, comparisons, margin, precision)
        except TooFewTrialsError:
            continue
    return Rule((cap,), alpha, comparisons, margin, precision)


@dataclass(frozen=True)
class Look:
    """The result of one look."""

    trials: int
    level: float
    """The interval's confidence is 1 - level; that of all looks together is 1 - alpha."""
    ratio: Estimate
    """Ours / theirs (Hodges and Lehmann), with the repeated confidence interval."""
    reason: Reason | None
    """None if the study goes on."""

    to_dict = asdict


def watch(rule: Rule, ours: Values, theirs: Values) -> Look | None:
    """The look that ended a comparison, or else the latest look. None before the first look.

    All looks are computed again. So an interrupted study continues as if nothing had happened, and
    a decision stays while other comparisons still run. Blocks after a look wait for the next look.
    Raises ValueError if the sides make no pairs, or if a value is not above zero.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} trials do not make pairs")
    latest: Look | None = None
    for trials, level in zip(rule.looks, rule.levels, strict=True):
        if trials > len(ours):
            break
        latest = _look(rule, level, ours[:trials], theirs[:trials])
        if latest.reason:
            break
    return latest


@cache
def boundaries(looks: Sequence[int], alpha: float) -> tuple[float, ...]:
    """The distance from zero that a standard normal statistic must have at each look.

    The density of the studies that no look has ended is propagated from look to look by independent
    increments, and integrated numerically (Armitage, McPherson and Rowe 1969). Each boundary is
    solved for the error that its look may spend. SciPy's multivariate normal distribution gives
    only three digits, and takes a second longer.
    """
    times = np.asarray(looks, dtype=float) / looks[-1]
    spending = np.diff(alpha * np.log1p((np.e - 1) * times), prepend=0.0)
    steps = np.diff(times, prepend=0.0)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    points, mass = np.zeros(1), np.ones(1)  # all studies start at zero
    found = []
    for time, step, spend in zip(times, steps, spending, strict=True):
        moved = stats.norm(loc=points, scale=np.sqrt(step))

        def excess(boundary: float, edge: float = np.sqrt(time), spend: float = spend) -> float:
            return float(2 * (mass * moved.sf(boundary * edge)).sum() - spend)  # noqa: B023

        boundary = float(optimize.brentq(excess, 0, 40, xtol=1e-9))
        reach = boundary * np.sqrt(time)
        density = (mass * moved.pdf((reach * nodes)[:, np.newaxis])).sum(axis=1)
        points, mass = reach * nodes, reach * weights * density
        found.append(boundary)
    return tuple(found)


def _look(rule: Rule, level: float, ours: Values, theirs: Values) -> Look:
    ratio = signed_rank(ours, theirs, Scale.RATIO, confidence=1 - level).shift
    reason = None
    if not ratio.holds(1):
        reason = Reason.DIFFERENT
    elif rule.margin and 1 / (1 + rule.margin) <= ratio.low and ratio.high <= 1 + rule.margin:
        reason = Reason.EQUIVALENT
    elif rule.precision and np.sqrt(ratio.high / ratio.low) - 1 <= rule.precision:
        reason = Reason.PRECISE
    elif len(ours) == rule.cap:
        reason = Reason.CAP
    return Look(len(ours), level, ratio, reason)
