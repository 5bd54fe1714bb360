"""How many pairs Wilcoxon's signed-rank test needs. This module loads neither NumPy nor SciPy."""

import math

ALPHA = 0.05
"""The probability with which a difference may be claimed although there is none."""


def signed_rank_pairs(alpha: float = ALPHA, *, sides: int = 2) -> int:
    """The smallest number of pairs with which the test can reach a level: six for 0.05.

    The smallest p-value, 2 / 2^n, belongs to n pairs that all differ in the same direction. A
    one-sided test has half of it. Raises ValueError if the level is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"level {alpha} does not lie between 0 and 1")
    return math.ceil(math.log2(sides / alpha))
