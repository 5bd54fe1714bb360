"""Where the hypervisor has our two CPUs, seen in the time that a cache line takes between them.

A virtual machine's CPUs are placed by its host, now on two cores, now on two threads of one
core, and this can change at any time. It is not shown to us, but a cache line takes twice as
long between two cores. So this time is taken before and after every trial.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

_JUMP = 1.35
"""Times of two states differ by more than this; within one they form no such gap."""
_LEAST = 4
"""As many times as this lie on each side of a gap that is no accident."""


class State(StrEnum):
    """Where the two CPUs were during a trial."""

    TOGETHER = "together"
    """The line was quick before and after."""
    APART = "apart"
    """The line was slow before and after."""
    CHANGED = "changed"
    """The one before, the other after."""


@dataclass(frozen=True)
class LineTimes:
    """How long a cache line took before and after a trial, nanoseconds."""

    before: float
    after: float

    @property
    def mean(self) -> float:
        """Half their sum."""
        return (self.before + self.after) / 2

    def state(self, boundary: float) -> State:
        """The state, where times below the boundary are those of CPUs together."""
        if max(self.before, self.after) < boundary:
            return State.TOGETHER
        return State.APART if min(self.before, self.after) >= boundary else State.CHANGED


def find_boundary(times: Sequence[float]) -> float | None:
    """The time that divides two states, or None where there was only one.

    It lies in the widest gap of the logarithms, if that is wide enough and not at an end.
    """
    ordered = np.sort(np.asarray(times, dtype=float))
    if len(ordered) < 2 * _LEAST:
        return None
    steps = ordered[_LEAST : -_LEAST + 1] / ordered[_LEAST - 1 : -_LEAST]
    widest = int(np.argmax(steps))
    if steps[widest] < _JUMP:
        return None
    return float(np.sqrt(ordered[_LEAST - 1 + widest] * ordered[_LEAST + widest]))
