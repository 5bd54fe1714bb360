"""Correction of p-values for many comparisons.

If nothing differs, one of twenty comparisons has a p-value below 0.05 by chance.

Holm's step-down procedure bounds the probability of any false claim in the family. It is for the
comparisons that a study was made for. The procedure of Benjamini and Hochberg bounds the expected
share of false claims among all claims, and so finds more differences. It is for sweeps over many
sizes: it allows comparisons that are independent or positively dependent, as those of neighbouring
sizes are.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np

from vicinal.labs.statistics.samples import Floats, Values, as_samples
from vicinal.labs.statistics.signed_rank import ALPHA


class Correction(StrEnum):
    """How the p-values of a family are corrected."""

    HOLM = "Holm"
    BENJAMINI_HOCHBERG = "Benjamini-Hochberg"


@dataclass(frozen=True)
class Claim:
    """One comparison of a family."""

    p_value: float
    adjusted: float
    """The smallest level of the whole family at which this comparison is claimed."""
    claimed: bool

    to_dict = asdict


@dataclass(frozen=True)
class Family:
    """Comparisons that are corrected for each other."""

    correction: Correction
    alpha: float
    claims: dict[str, Claim]
    """By name, in the order of the input."""

    to_dict = asdict


def correct(
    p_values: Mapping[str, float],
    correction: Correction = Correction.HOLM,
    alpha: float = ALPHA,
) -> Family:
    """Decide which comparisons of a family may be claimed.

    Raises ValueError if a p-value does not lie between 0 and 1. An empty family has no claims.
    """
    adjust = {Correction.HOLM: holm, Correction.BENJAMINI_HOCHBERG: benjamini_hochberg}
    adjusted = adjust[correction](list(p_values.values())) if p_values else np.empty(0)
    return Family(
        correction,
        alpha,
        {
            name: Claim(float(p_value), float(new), bool(new <= alpha))
            for (name, p_value), new in zip(p_values.items(), adjusted, strict=True)
        },
    )


def holm(p_values: Values) -> Floats:
    """Adjusted p-values, in the order of the input (Holm 1979).

    The smallest of m p-values is multiplied by m, the next one by m - 1, and so on. An adjusted
    value is at least the one before it, and at most 1.
    """
    values = _checked(p_values)
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(values[order] * factors))
    return adjusted


def benjamini_hochberg(p_values: Values) -> Floats:
    """Adjusted p-values, in the order of the input (Benjamini and Hochberg 1995)."""
    from scipy import stats  # takes a second to load

    adjusted: Floats = stats.false_discovery_control(_checked(p_values), method="bh")
    return adjusted


def _checked(p_values: Values) -> Floats:
    values = as_samples(p_values).astype(np.float64)
    if ((values < 0) | (values > 1)).any():
        raise ValueError("a p-value does not lie between 0 and 1")
    return values
