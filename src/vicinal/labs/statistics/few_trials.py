"""The median of a few trials without numpy and scipy, which `vicinal demo` does not need."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate


def median_of_few(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The same estimate as `describe.median_estimate`, in time that grows with the square of the
    number of values.

    Raises ValueError if there are no values, or if one is not a finite number.
    """
    if not values:
        raise ValueError("no values")
    if not all(map(math.isfinite, values)):
        raise ValueError("a value is no measurement")
    ordered = sorted(map(float, values))
    low, high, reached = _enclosing_ranks(len(ordered), confidence)
    return Estimate(median(ordered), ordered[low - 1], ordered[high - 1], reached)


@lru_cache(maxsize=64)
def _enclosing_ranks(count: int, confidence: float) -> tuple[int, int, float]:
    """Ranks of the two values that enclose the median, from 1, and the interval's confidence.

    The number of values below the true median is binomial with chance 1/2, so both ranks lie
    symmetrically: value k from below, and value k from above.
    """
    outside = (1 - confidence) / 2
    below = 0  # the number of ways in which at most `rank` values are below the median
    rank = 0
    while (below := below + math.comb(count, rank)) / 2**count < outside:
        rank += 1
    low = min(max(rank, 1), (count + 1) // 2)
    ways = sum(math.comb(count, number) for number in range(low, count - low + 1))
    return low, count - low + 1, ways / 2**count
