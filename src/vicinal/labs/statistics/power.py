"""Power: how many trials find a difference of a given size, and with which probability.

The noise of the paired log ratios decides. It is given as a standard deviation, if it is normal, or
better as the residuals of a pilot of some trials (`noise_of`). A disturbed machine interrupts a few
trials: they make the standard deviation large, but matter little to the test of differences.

The stated power is the power of that test (signed_rank.py). Studies with such noise are simulated
and tested, always with the same random numbers.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from scipy import optimize, stats

from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.samples import (
    Floats,
    Scale,
    TooFewTrialsError,
    Values,
    differences,
    is_constant,
)
from vicinal.labs.statistics.signed_rank import (
    ALPHA,
    hodges_lehmann,
    signed_rank_p_values,
    signed_rank_pairs,
)

STUDIES = 10_000
"""Studies simulated for each figure, which is then exact to a percentage point (two standard
errors)."""

MOST_TRIALS = 200
"""The largest number of trials that is considered."""

_SEED = 20140301


@dataclass(frozen=True)
class Power:
    """The power of a design."""

    trials: int
    difference: float
    """Relative difference of the sides: 0.03 is 3 %."""
    noise: float
    """Standard deviation of the log ratio of a pair."""
    alpha: float
    """The level of the comparison, after the family's level is shared."""
    power: float
    """Probability that the difference is claimed."""

    to_dict = asdict


@dataclass(frozen=True)
class Noise:
    """The spread of the log ratios of pairs."""

    deviation: Estimate
    """Their standard deviation; 0.04 is about 4 %. Its interval holds only for normal noise."""
    residuals: tuple[float, ...]
    """Distance of each pair of the pilot from the centre, as a log ratio."""

    to_dict = asdict


def noise_of(ours: Values, theirs: Values, confidence: float = CONFIDENCE) -> Noise:
    """The noise between two sides, from the trials of a pilot.

    The interval of a pilot of ten spans a factor of 2.7. If a study cannot be repeated, plan with
    the upper end of `deviation`. Raises TooFewTrialsError below two pairs, and ValueError if the
    pairs do not differ.
    """
    ratios = differences(ours, theirs, Scale.RATIO, method="a standard deviation", needed=2)
    if is_constant(ratios):
        raise ValueError("all pairs have the same ratio, so there is no noise to plan with")
    deviation, freedom = float(ratios.std(ddof=1)), len(ratios) - 1
    outside = (1 - confidence) / 2
    low = deviation * np.sqrt(freedom / stats.chi2.isf(outside, freedom))
    high = deviation * np.sqrt(freedom / stats.chi2.ppf(outside, freedom))
    residuals = ratios - hodges_lehmann(ratios).value
    return Noise(
        Estimate(deviation, float(low), float(high), confidence), tuple(residuals.tolist())
    )


def power_of(
    trials: int,
    *,
    difference: float,
    noise: float | Noise,
    alpha: float = ALPHA,
    comparisons: int = 1,
) -> Power:
    """The probability that a number of trials finds a difference.

    With several comparisons, each is tested at alpha / comparisons, the strictest step of Holm's
    procedure. The power is therefore at least the stated one. Raises TooFewTrialsError if no
    outcome of this number of trials could be significant, and ValueError if the noise is not above
    zero or the difference not above -1.
    """
    level = alpha / comparisons
    needed = signed_rank_pairs(level)
    if trials < needed:
        raise TooFewTrialsError(f"Wilcoxon's test at {level:g}", trials, needed)
    if difference <= -1:
        raise ValueError(f"a difference of {difference:g} leaves nothing")
    ratios = np.log1p(difference) + _simulated(noise, trials)
    power = float((signed_rank_p_values(ratios) <= level).mean())
    return Power(trials, difference, _deviation(noise), level, power)


def trials_for(
    difference: float,
    *,
    noise: float | Noise,
    power: float = 0.8,
    alpha: float = ALPHA,
    comparisons: int = 1,
) -> Power:
    """The smallest number of trials that finds a difference with probability `power`.

    Raises ValueError if more than MOST_TRIALS were needed, and the errors of `power_of`.
    """

    def stated(trials: int) -> Power:
        return power_of(
            trials, difference=difference, noise=noise, alpha=alpha, comparisons=comparisons
        )

    least = signed_rank_pairs(alpha / comparisons)
    found = _first(lambda trials: stated(trials).power >= power, least, MOST_TRIALS)
    if found is None:
        raise ValueError(
            f"more than {MOST_TRIALS} trials would be needed for a difference of {difference:g} in "
            f"noise of {_deviation(noise):g}"
        )
    return stated(found)


def difference_found(
    trials: int,
    *,
    noise: float | Noise,
    power: float = 0.8,
    alpha: float = ALPHA,
    comparisons: int = 1,
) -> Power:
    """The smallest difference that a number of trials finds with probability `power`: 0.03 is 3 %.

    Raises the errors of `power_of`, and ValueError if the power is not between alpha and 1.
    """

    def stated(difference: float) -> Power:
        return power_of(
            trials, difference=difference, noise=noise, alpha=alpha, comparisons=comparisons
        )

    if not alpha < power < 1:
        raise ValueError(f"a power of {power:g} does not lie between {alpha:g} and 1")
    # In units of the noise: six trials find every difference of more than ten units.
    unit = _deviation(noise)
    reach = float(
        optimize.brentq(
            lambda units: stated(float(np.expm1(units * unit))).power - power, 0, 10, xtol=1e-3
        )
    )
    return stated(float(np.expm1(reach * unit)))


def _deviation(noise: float | Noise) -> float:
    return noise.deviation.value if isinstance(noise, Noise) else noise


def _simulated(noise: float | Noise, trials: int) -> Floats:
    """Simulated log ratios, of shape (STUDIES, trials)."""
    random = np.random.default_rng(_SEED)
    shape = (STUDIES, trials)
    if not isinstance(noise, Noise):
        if noise <= 0:
            raise ValueError(f"noise of {noise:g} is not above zero")
        return noise * random.standard_normal(shape)
    # With either sign, because the side that runs first is drawn. A factor below 1.01 makes all
    # values different: measured times have no ties, and the test needs none.
    drawn: Floats = random.choice(np.array(noise.residuals), shape) * random.choice(
        [-1.0, 1.0], shape
    )
    drawn *= 1 + 0.01 * random.random(shape)
    return drawn


def _first(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The first number for which `holds`, which then holds for all larger numbers."""
    step = low
    while not holds(step):
        if step == high:
            return None
        low, step = step + 1, min(2 * step, high)
    while low < step:
        middle = (low + step) // 2
        low, step = (low, middle) if holds(middle) else (middle + 1, step)
    return step
