"""Samples: what every part of a study hands on to the next."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal.base.errors import VicinalError


@dataclass(frozen=True)
class Series:
    """The times of one rank's iterations at one size, in the order in which they were."""

    size: int
    """Bytes of a message, or of a rank's part; 0 where the workload has no sizes."""
    rank: int
    messages: int
    """Messages, or calls, that are in one sample: two in a ping-pong, a window of them, or one.

    What one took is a sample divided by it; and so many went through in the time of a sample.
    """
    nanoseconds: NDArray[np.int64]


def slowest(series: Sequence[Series]) -> NDArray[np.int64]:
    """For each iteration the time of the rank that it took longest on.

    The series are those of all ranks at one size, of an operation in which iteration `i` of all
    ranks is the same call. Raises VicinalError where they are not as many on each rank.
    """
    lengths = {len(each.nanoseconds) for each in series}
    if len(lengths) != 1 or len({each.size for each in series}) != 1:
        raise VicinalError(
            "ranks have different numbers of samples, so their iterations cannot be compared",
            "choose the series of one size, of an operation that all ranks take part in",
        )
    longest = series[0].nanoseconds.copy()
    for each in series[1:]:
        np.maximum(longest, each.nanoseconds, out=longest)
    return longest
