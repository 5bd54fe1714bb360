"""Stopping early, without being wrong more often for having looked.

Who tests after each block and stops at the first p-value below 0.05 finds a difference where there
is none in 23 of 100 studies of up to 40 blocks. So it is fixed before the study when it is looked
at the data, and each look spends a part of the error that is allowed (Lan and DeMets 1983, with the
spending function that gives boundaries like Pocock's 1977): of five looks, each tests at about
0.015 instead of 0.05. Jennison and Turnbull (1989) turn that into *repeated confidence intervals*:
all looks' intervals hold the true ratio at the same time with 1 - alpha, so a study may stop for
whatever reason they give, and the interval it stopped with is still good:

- it does not hold 1: the sides differ;
- it lies within the margin: they are equivalent;
- it is as narrow as was asked for;
- the cap is reached, the last look. Then it is said that nothing was decided.

Pocock's and not O'Brien and Fleming's boundaries, since differences of virtualization are often
large, and then the first look is enough. The price is the last look, which tests at 0.017 instead
of 0.05 and so wants about a fifth more trials than a study without looks.

Each look's interval is that of Wilcoxon's signed-rank test (signed_rank.py) at the level of the
look. The levels are those of the normal distribution, which the sums of ranks approach; the test is
exact at each look and with few trials never reaches its level.
tests/python/statistics/test_statistics_stopping.py simulates what all that is worth on quiet and
disturbed machines.

Several comparisons that stop together share the error equally (Bonferroni): Holm's order needs all
p-values at once, and they end at different looks.
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
"""Places at which a density is known; twice as many change no boundary by 1e-9."""


class Reason(StrEnum):
    """Why a study stopped."""

    DIFFERENT = "different"
    EQUIVALENT = "equivalent"
    PRECISE = "precise enough"
    CAP = "cap reached"


@dataclass(frozen=True)
class Rule:
    """When it is looked, and what ends a study.

    Raises ValueError if the looks do not grow, TooFewTrialsError if the first is too early to find
    anything.
    """

    looks: tuple[int, ...]
    """Numbers of blocks after which it is looked. The last one is the cap."""
    alpha: float = ALPHA
    comparisons: int = 1
    """How many are watched at the same time; they share alpha."""
    margin: float | None = None
    """0.03: sides within 3 % of each other are equivalent. None: never stop for that."""
    precision: float | None = None
    """0.01: stop when the interval is not wider than 1 % to each side. None: never for that."""

    to_dict = asdict

    def __post_init__(self) -> None:
        if not self.looks or self.looks[0] < 1 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks after {self.looks} blocks do not grow")
        needed = signed_rank_pairs(self.levels[0])
        if self.looks[0] < needed:
            raise TooFewTrialsError(f"a first look at {self.levels[0]:.2g}", self.looks[0], needed)

    @property
    def cap(self) -> int:
        """The most blocks that are run."""
        return self.looks[-1]

    @property
    def levels(self) -> tuple[float, ...]:
        """The two-sided level that each look tests at."""
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
    """Looks as even as whole blocks allow, from the earliest that can find anything to the cap.

    With a cap that leaves no room for an early look, the cap is the only one. Raises
    TooFewTrialsError if even that is too early.
    """
    for first in range(signed_rank_pairs(alpha / comparisons), cap):
        blocks = tuple(sorted({int(place) for place in np.linspace(first, cap, looks).round()}))
        try:
            return Rule(blocks, alpha, comparisons, margin, precision)
        except TooFewTrialsError:
            continue
    return Rule((cap,), alpha, comparisons, margin, precision)


@dataclass(frozen=True)
class Look:
    """What one look found."""

    trials: int
    level: float
    """The interval's confidence is 1 - level; that of all looks' together is 1 - alpha."""
    ratio: Estimate
    """Ours / theirs (Hodges and Lehmann), with the repeated confidence interval."""
    reason: Reason | None
    """None: go on."""

    to_dict = asdict


def watch(rule: Rule, ours: Values, theirs: Values) -> Look | None:
    """The look that ended a comparison, or else the latest one; None before the first.

    It goes through all looks anew, so that an interrupted study goes on as if nothing had happened,
    and what was decided stays decided while other comparisons still run. Blocks between two looks
    wait for the next. Raises ValueError if the sides make no pairs or a value is not above zero.
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
    """How far from zero a standard normal statistic must be at each look.

    The density of the studies that no look has ended yet goes from look to look by its independent
    increments, and is integrated numerically (Armitage, McPherson and Rowe 1969); each boundary is
    solved for what its look may spend. SciPy's multivariate normal distribution gives the same to
    only three digits, and a second later.
    """
    times = np.asarray(looks, dtype=float) / looks[-1]
    spending = np.diff(alpha * np.log1p((np.e - 1) * times), prepend=0.0)
    steps = np.diff(times, prepend=0.0)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    places, mass = np.zeros(1), np.ones(1)  # before the first look, all studies are at zero
    found = []
    for time, step, spend in zip(times, steps, spending, strict=True):
        moved = stats.norm(loc=places, scale=np.sqrt(step))

        def excess(boundary: float, edge: float = np.sqrt(time), spend: float = spend) -> float:
            return float(2 * (mass * moved.sf(boundary * edge)).sum() - spend)  # noqa: B023

        boundary = float(optimize.brentq(excess, 0, 40, xtol=1e-9))
        reach = boundary * np.sqrt(time)
        density = (mass * moved.pdf((reach * nodes)[:, np.newaxis])).sum(axis=1)
        places, mass = reach * nodes, reach * weights * density
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
