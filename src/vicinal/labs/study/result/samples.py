"""Samples, the data that the parts of a study exchange."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal.base.errors import VicinalError


@dataclass(frozen=True)
class Series:
    """The times of one rank's iterations at one size, in their order."""

    size: int
    """Bytes of a message, or of a rank's part; 0 for a workload without sizes."""
    rank: int
    messages: int
    """Messages or calls in one sample: two in a ping-pong, a window of messages, or one.

    A sample divided by this number is the time of one message. In a sample's time this many
    messages were transferred.
    """
    nanoseconds: NDArray[np.int64]


def slowest(series: Sequence[Series]) -> NDArray[np.int64]:
    """For each iteration, the time of the slowest rank.

    The series are those of all ranks at one size, of an operation in which iteration `i` of all
    ranks is the same call. Raises VicinalError if ranks have different numbers of samples.
    """
    lengths = {len(each.nanoseconds) for each in series}
    if len(lengths) != 1 or len({each.size for each in series}) != 1:
        raise VicinalError(
            "ranks have different numbers of samples, so their iterations cannot be compared",
            "choose the series of one size, of an operation in which all ranks take part",
        )
    longest = series[0].nanoseconds.copy()
    for each in series[1:]:
        np.maximum(longest, each.nanoseconds, out=longest)
    return longest
