"""How many pairs Wilcoxon's signed-rank test needs. This module loads neither NumPy nor SciPy."""

import math

ALPHA = 0.05
"""How often a difference may be claimed where there is none."""


def signed_rank_pairs(alpha: float = ALPHA, *, sides: int = 2) -> int:
    """The least number of pairs with which the test can reach a level: six for 0.05.

    Its smallest p-value is that of pairs which all differ in the same direction, 2 / 2^n.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"level {alpha} does not lie between 0 and 1")
    return math.ceil(math.log2(sides / alpha))
