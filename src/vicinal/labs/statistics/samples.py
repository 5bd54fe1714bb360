"""Checks of measured values, and pairs of them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[Any]
Floats = NDArray[np.float64]


class Scale(StrEnum):
    """What a test of pairs compares."""

    RATIO = "ratio"
    """Logarithms of ratios: 3 % mean the same for any value, and 2 is as far from 1 as 1/2."""
    DIFFERENCE = "difference"
    """Differences in the values' unit, as in published tables."""


class TooFewTrialsError(ValueError):
    """The method cannot give any result with this number of trials.

    `message` and `remedy` are phrases, as in VicinalError. `needed` is the smallest sufficient
    number of trials.
    """

    def __init__(self, method: str, given: int, needed: int) -> None:
        super().__init__(method, given, needed)
        self.given = given
        self.needed = needed
        self.message = f"{_counted(given)} are too few for {method}, which needs {needed}"
        self.remedy = f"measure at least {needed} trials of each side"

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"


def as_samples(values: Values) -> NDArray[Any]:
    """The values as a one-dimensional array. Integers stay integers.

    Raises ValueError if there are no values, or if one is not a finite number.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"values have {array.ndim} dimensions instead of one")
    if len(array) == 0:
        raise ValueError("no values")
    if array.dtype.kind in "iu":
        return array
    array = np.asarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        position = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"value {position} is {array[position]}, which is no measurement")
    return array


def as_pairs(
    ours: Values, theirs: Values, *, method: str = "pairs", needed: int = 1
) -> tuple[Floats, Floats]:
    """Both sides as arrays of floats. Element i of both is trial i.

    Raises ValueError if the sides differ in length, and TooFewTrialsError below `needed` pairs.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} trials do not make pairs")
    if len(ours) < needed:
        raise TooFewTrialsError(method, len(ours), needed)
    return (as_samples(ours).astype(np.float64), as_samples(theirs).astype(np.float64))


def differences(
    ours: Values, theirs: Values, scale: Scale, *, method: str = "pairs", needed: int = 1
) -> Floats:
    """The difference of each pair of trials: log(ours / theirs), or ours - theirs.

    A ratio does not contain what slowed down both trials of a pair by the same factor. Raises
    ValueError if a value of a ratio is not above zero, and the errors of `as_pairs`.
    """
    left, right = as_pairs(ours, theirs, method=method, needed=needed)
    if scale is Scale.DIFFERENCE:
        return left - right
    for side in (left, right):
        if (side <= 0).any():
            raise ValueError(f"{side[side <= 0][0]:g} is not above zero, so it has no ratio")
    return np.log(left) - np.log(right)


def is_constant(differences: Floats) -> bool:
    """Whether all values are equal, except for rounding."""
    return bool(np.ptp(differences) <= 1e-9 * np.abs(differences).max())


def _counted(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials} trials"
