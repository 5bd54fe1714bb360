"""Simulated machines: trials of studies whose truth is known, one row for each study."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SimulatedHost = Callable[[np.random.Generator, int, int], tuple[Floats, Floats]]
"""(random numbers, studies, blocks) -> the trials of two sides that are the same."""


def quiet(random: np.random.Generator, studies: int, blocks: int) -> tuple[Floats, Floats]:
    """Times that vary by 4 % within a block, and by nothing else."""
    shape = (studies, blocks)
    noise = 0.04 / np.sqrt(2)
    return np.exp(random.normal(0, noise, shape)), np.exp(random.normal(0, noise, shape))


def noisy(random: np.random.Generator, studies: int, blocks: int) -> tuple[Floats, Floats]:
    """A machine with all disturbances of real machines, at random and the same on both sides.

    It drifts from block to block. The side that runs first in a block is 1 % slower (and the order
    is random). One trial in eight is interrupted and takes up to twice as long. In some blocks, the
    placement on CPUs makes everything 40 % slower.
    """
    shape = (studies, blocks)
    drift = np.cumsum(random.normal(0, 0.02, shape), axis=1)
    placed = np.where(random.random(shape) < 0.3, np.log(1.4), 0.0)
    first = random.random(shape) < 0.5

    def side(late: NDArray[np.bool_]) -> Floats:
        scatter = random.gamma(4, 0.01, shape)  # never faster than possible, sometimes slower
        hit = np.where(random.random(shape) < 1 / 8, random.exponential(0.25, shape), 0)
        values: Floats = np.exp(drift + placed + scatter + hit + np.where(late, 0, 0.01))
        return values

    return side(~first), side(first)
