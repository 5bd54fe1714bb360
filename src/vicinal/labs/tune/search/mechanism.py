"""Whether interrupts changed together with the time; if not, the cause of an improvement is
unknown.

Only interrupts of devices count, which have numbers: timers tick with the duration of a trial, and
processors interrupt each other for other reasons. A change counts if the number for the same work
and the number per second changed in the same direction. One of the two numbers is not enough,
because the duration of a trial changes each of them: in a shorter trial, periodic interrupts are
fewer, and interrupts per packet have a higher rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.signed_rank import ALPHA, signed_rank

_FEWEST = 10
"""Vectors whose median count is smaller on both sides are ignored."""


@dataclass(frozen=True)
class VectorChange:
    """Interrupts of one vector: new setting / present setting."""

    vector: str
    ratio: Estimate
    """Ratio of the numbers for the same work."""
    p_value: float
    """The larger p-value of both tests, corrected for the other vectors."""


@dataclass(frozen=True)
class Mechanism:
    """The change of interrupts with a setting that changed the time."""

    established: bool
    changes: tuple[VectorChange, ...]
    """The vectors that changed."""
    reason: str
    """Why the mechanism is established or not, as a phrase."""

    to_dict = asdict


def interrupts_of(evidence: Mapping[str, Any]) -> float | None:
    """Interrupts of devices in a trial per unit of work; None if none were counted."""
    count = _of_devices(evidence)
    return None if count is None else count / _work(evidence)


def interrupts_per_second(evidence: Mapping[str, Any]) -> float | None:
    """Interrupts of devices per second of a trial; None if none were counted."""
    count = _of_devices(evidence)
    return None if count is None else count / float(evidence["seconds"])


def mechanism(
    ours: Sequence[Mapping[str, Any]],
    theirs: Sequence[Mapping[str, Any]],
    alpha: float = ALPHA,
) -> Mechanism:
    """Compare the evidence of pairs of trials: trial i of both sides ran in block i."""
    sides = [*ours, *theirs]
    if not sides or any("interrupts" not in each for each in sides):
        return Mechanism(False, (), "no interrupts were counted")
    names = dict.fromkeys(name for each in sides for name in each["interrupts"] if _is_device(name))
    tested = {}
    for name in names:
        counts = [_counts(side, name) for side in (ours, theirs)]
        if max(float(np.median(each)) for each in counts) >= _FEWEST:
            tested[name] = _change(name, ours, theirs)
    if not tested:
        return Mechanism(False, (), "hardly any device interrupted")
    family = correct({name: change.p_value for name, change in tested.items()}, alpha=alpha)
    changes = tuple(
        VectorChange(name, change.ratio, family.claims[name].adjusted)
        for name, change in tested.items()
        if family.claims[name].claimed
    )
    if not changes:
        return Mechanism(False, (), "the time changed, and the interrupts did not")
    return Mechanism(True, changes, "interrupts changed as well")


def _change(
    name: str, ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> VectorChange:
    def per(unit: str) -> tuple[list[float], list[float]]:
        def counted(side: Sequence[Mapping[str, Any]]) -> list[float]:
            units = [_work(each) if unit == "work" else float(each["seconds"]) for each in side]
            # One more, because a count of zero has no ratio.
            return [(n + 1) / u for n, u in zip(_counts(side, name), units, strict=True)]

        return counted(ours), counted(theirs)

    by_work, by_time = signed_rank(*per("work")), signed_rank(*per("seconds"))
    same = (by_work.shift.value > 1) == (by_time.shift.value > 1)
    p_value = max(by_work.p_value, by_time.p_value) if same else 1.0
    return VectorChange(name, by_work.shift, p_value)


def _counts(side: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(each["interrupts"].get(name, 0)) for each in side]


def _of_devices(evidence: Mapping[str, Any]) -> float | None:
    vectors = evidence.get("interrupts")
    if vectors is None:
        return None
    return float(sum(count for name, count in vectors.items() if _is_device(name)))


def _work(evidence: Mapping[str, Any]) -> float:
    """A trial's work in its own unit; 1 for all trials if the work is unknown."""
    return float(evidence.get("work") or 1.0)


def _is_device(vector: str) -> bool:
    return vector.partition(" ")[0].isdigit()
