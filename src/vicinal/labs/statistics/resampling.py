"""The medians of a bootstrap's resamples, without making the resamples.

Which trials a resample draws depends on their number and on the seed, and not on their values. So
how often each trial is in each resample is counted once, and is the same for all samples of that
length: a study has hundreds. A resample's median follows from the counts, taken in the order of the
values.

The medians are to the last bit those that `scipy.stats.bootstrap` computes with the same seed,
which a test holds them to. SciPy takes ten times as long and more, most of it to put each of the
resamples in order.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.labs.statistics.samples import Floats

_KEPT = 8
"""Lengths whose counts are kept: 100 kB for ten trials."""


def resampled_medians(values: Floats, resamples: int, seed: int) -> Floats:
    """The median of each of so many resamples of the values, with replacement."""
    count = len(values)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    # Row k: how many of a resample's values are among the k + 1 smallest.
    counts = _counts(count, resamples, seed)
    up_to = np.cumsum(counts[order], axis=0, dtype=counts.dtype)
    upper: Floats = ordered[_place(up_to, count // 2)]
    if count % 2:
        return upper
    lower: Floats = ordered[_place(up_to, count // 2 - 1)]
    return (lower + upper) / 2


def _place(up_to: NDArray[Any], rank: int) -> NDArray[Any]:
    """Which of the ordered values a resample's value of that rank is, counted from 0."""
    return np.asarray((up_to <= rank).sum(axis=0, dtype=up_to.dtype))


@lru_cache(maxsize=_KEPT)
def _counts(count: int, resamples: int, seed: int) -> NDArray[Any]:
    """How often value i is in resample j: drawn as SciPy draws, one resample after the other.

    In the smallest integers that their sum fits in.
    """
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    of_resample = count * np.arange(resamples)[:, np.newaxis]
    counted = np.bincount((drawn + of_resample).ravel(), minlength=resamples * count)
    small = counted.reshape(resamples, count).T.astype(np.min_scalar_type(count))
    found = np.ascontiguousarray(small)
    found.flags.writeable = False  # all share it
    return found
