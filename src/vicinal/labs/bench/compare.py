"""Fair comparison of sides: trials of all sides in turn, and the decision about a bar.

A host places the CPUs of a virtual machine on two cores or on two threads of one core, and may
change this at any time. The virtual machine cannot see the placement, but a cache line takes twice
as long between two cores. So this time is measured before and after every trial.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.bench.bars import Against, Bar, Group
from vicinal.labs.bench.metric import FACTS, Metric, Trial
from vicinal.labs.bench.sides import Scenario, Side
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.ratio import best_ratio_estimate, sum_ratio_estimate

LEAST_TRIALS = 3
"""The number of trials of every side that makes a figure for one state of the CPUs."""

_JUMP = 1.35
"""The factor by which times of two states differ. Within a state there is no such gap."""
_LEAST = 4
"""The number of times on each side that makes a gap significant."""


class State(StrEnum):
    """The placement of the two CPUs during a trial."""

    TOGETHER = "together"
    """The cache line was quick before and after."""
    APART = "apart"
    """The cache line was slow before and after."""
    CHANGED = "changed"
    """The cache line was quick at one end and slow at the other."""


@dataclass(frozen=True)
class LineTimes:
    """The time of a cache line before and after a trial, in ns."""

    before: float
    after: float

    @property
    def mean(self) -> float:
        """The mean of both times, in ns."""
        return (self.before + self.after) / 2

    def state(self, boundary: float) -> State:
        """The state. Times below the boundary are those of CPUs on one core."""
        if max(self.before, self.after) < boundary:
            return State.TOGETHER
        return State.APART if min(self.before, self.after) >= boundary else State.CHANGED


def find_boundary(times: Sequence[float]) -> float | None:
    """The time that divides two states, or None if there is only one state.

    It lies in the widest gap of the logarithms, if the gap is wide enough and not at an end.
    """
    ordered = np.sort(np.asarray(times, dtype=float))
    if len(ordered) < 2 * _LEAST:
        return None
    steps = ordered[_LEAST : -_LEAST + 1] / ordered[_LEAST - 1 : -_LEAST]
    widest = int(np.argmax(steps))
    if steps[widest] < _JUMP:
        return None
    return float(np.sqrt(ordered[_LEAST - 1 + widest] * ordered[_LEAST + widest]))


@dataclass(frozen=True)
class Sample:
    """One trial of one side, with the times of a cache line around it."""

    trials: Mapping[Metric, Trial]
    line: LineTimes


@dataclass
class Rounds:
    """All trials of a group. Sample i of every side belongs to round i."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    """Samples by the name of the side."""
    missing: dict[str, str] = field(default_factory=dict)
    """Sides that could not be measured, with the reasons as phrases."""
    failed: set[str] = field(default_factory=set)
    """Sides of these that are available but failed."""


RunTrial = Callable[[str], Mapping[Metric, Trial]]
"""Starts the program of a group once, on the side with the given name."""


def alternate(
    names: Sequence[str], rounds: int, run: RunTrial, line: Callable[[], float]
) -> Rounds:
    """Run trials of all sides in turn. Every other round goes backwards.

    A temporary slowdown of the machine then affects all sides. A side that fails is left out of
    later rounds, and the other sides continue.
    """
    result = Rounds(samples={name: [] for name in names})
    order = list(names)
    for _ in range(rounds):
        before = line()
        for name in list(order):
            try:
                trials = run(name)
            except VicinalError as error:
                result.missing[name] = error.message
                result.failed.add(name)
                order.remove(name)
                del result.samples[name]
                continue
            after = line()
            result.samples[name].append(Sample(trials, LineTimes(before, after)))
            before = after
        order.reverse()
    return result


def decide(bar: Bar, group: Group, rounds: Rounds) -> dict[str, Any]:
    """One row of the result, which says whether the ratio of the medians reaches the bar."""
    if bar.waits_for:
        return unmeasured_row(bar, group, f"waits for {bar.waits_for}")
    absent = [name for name in bar.theirs if name in rounds.missing]
    present = [name for name in bar.theirs if name not in rounds.missing]
    needed = [bar.ours] if bar.ours in rounds.missing else []
    if not present or bar.against is Against.SUM:
        needed += absent
    if needed:
        failed = any(name in rounds.failed for name in needed)
        return unmeasured_row(bar, group, rounds.missing[needed[0]], failed=failed)
    ours = _values(bar, group, bar.ours, rounds)
    theirs = {name: _values(bar, group, name, rounds) for name in present}
    if bar.against is Against.SUM:
        summed = [float(sum(parts)) for parts in zip(*theirs.values(), strict=True)]
        candidates = {"+".join(present): summed}
    else:
        candidates = theirs
    lower = FACTS[Metric(bar.metric)].lower_is_better
    medians = {name: float(np.median(values)) for name, values in candidates.items()}
    best = (min if lower else max)(medians, key=lambda name: medians[name])
    sides = [_side(bar, group, name, rounds) for name in present]
    if bar.against is Against.SUM:
        chosen = _sum_side(best, candidates[best], sides)
    else:
        chosen = sides[present.index(best)]
    row = make_row(
        bar,
        best_ratio_estimate(ours, list(candidates.values()), lower_is_better=lower),
        unit="ratio",
        trials=len(ours),
        ours=_side(bar, group, bar.ours, rounds),
        theirs=chosen,
    )
    row["group"] = group.name
    row["candidates"] = sides
    row["notes"] += [
        f"without {group.sides[name].title}: {rounds.missing[name]}" for name in absent
    ]
    row["failed"] = any(name in rounds.failed for name in absent)  # it might have been the best
    lines = {
        name: [sample.line for sample in rounds.samples[name]] for name in (bar.ours, *present)
    }
    values = {bar.ours: ours, **theirs}
    row["placement"] = _placement(bar, lines, values, lower=lower)
    return row


def _values(bar: Bar, group: Group, name: str, rounds: Rounds) -> list[float]:
    """The value of a side for a bar, in each round."""
    return [float(np.median(values)) for values in _raw(bar, group, name, rounds)]


def _raw(bar: Bar, group: Group, name: str, rounds: Rounds) -> list[list[float]]:
    """The repetitions of each trial."""
    assert bar.size is not None
    side = group.sides[name]
    metric = side.metric or Metric(bar.metric)
    return [sample.trials[metric].repetitions[bar.size] for sample in rounds.samples[name]]


def _side(bar: Bar, group: Group, name: str, rounds: Rounds) -> dict[str, Any]:
    samples = rounds.samples[name]
    unit = FACTS[Metric(bar.metric)].unit
    entry = side_entry(name, group.sides[name], unit, _raw(bar, group, name, rounds))
    entry["line_ns"] = [[sample.line.before, sample.line.after] for sample in samples]
    if isinstance(group.sides[name], Scenario):
        entry["hosts"] = next(iter(samples[0].trials.values())).hosts
    return entry


def side_entry(
    name: str,
    side: Side,
    unit: str,
    raw: list[list[float]],
    detail: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One side of a row: all repetitions of each trial, and the median of the trials."""
    entry = {
        "name": name,
        side.result_key: side.to_dict(),
        "unit": unit,
        "median": median_estimate([float(np.median(values)) for values in raw]).to_dict(),
        "raw": raw,
    }
    return entry if detail is None else entry | {"detail": detail}


def _sum_side(name: str, values: list[float], parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "unit": parts[0]["unit"],
        "median": median_estimate(values).to_dict(),
        "raw": [[value] for value in values],
        "sum": [part["name"] for part in parts],
    }


def _placement(
    bar: Bar,
    lines: Mapping[str, Sequence[LineTimes]],
    values: Mapping[str, Sequence[float]],
    *,
    lower: bool,
) -> dict[str, Any]:
    """The times of a cache line around the trials, and the ratio in each state of the CPUs."""
    every = [time for side in lines.values() for time in side]
    boundary = find_boundary([time for pair in every for time in (pair.before, pair.after)])
    found: dict[str, Any] = {
        "line_ns": float(np.median([time.mean for time in every])),
        "boundary_ns": boundary,
        "changed": 0,
        "states": [],
    }
    if boundary is None:
        return found
    found["changed"] = sum(time.state(boundary) is State.CHANGED for time in every)
    for state in (State.TOGETHER, State.APART):
        inside = {
            name: [
                value
                for value, time in zip(values[name], side, strict=True)
                if time.state(boundary) is state
            ]
            for name, side in lines.items()
        }
        if min(map(len, inside.values())) < LEAST_TRIALS:
            continue
        found["states"].append(
            {
                "state": state.value,
                "line_ns": float(
                    np.median([time.mean for time in every if time.state(boundary) is state])
                ),
                "trials": {name: len(side) for name, side in inside.items()},
                "ratio": _state_ratio(bar, inside, lower=lower).to_dict(),
            }
        )
    return found


def _state_ratio(bar: Bar, inside: Mapping[str, list[float]], *, lower: bool) -> Estimate:
    """The ratio of the trials in one state. Their rounds no longer make pairs."""
    theirs = [values for name, values in inside.items() if name != bar.ours]
    if bar.against is Against.SUM:
        return sum_ratio_estimate(inside[bar.ours], theirs)
    return best_ratio_estimate(inside[bar.ours], theirs, lower_is_better=lower, paired=False)


def make_row(
    bar: Bar,
    measured: Estimate,
    *,
    unit: str,
    trials: int,
    ours: dict[str, Any],
    theirs: dict[str, Any] | None,
) -> dict[str, Any]:
    """A row of the result, in the form of its schema."""
    met = bar.met_by(measured.value)
    return _head(bar) | {
        "ours": ours,
        "theirs": theirs,
        "candidates": [],
        "measured": measured.to_dict(),
        "unit": unit,
        "met": met,
        "certain": bar.met_by(measured.low) == met and bar.met_by(measured.high) == met,
        "trials": trials,
    }


def unmeasured_row(bar: Bar, group: Group, reason: str, *, failed: bool = False) -> dict[str, Any]:
    """The row of a bar without a figure, with the reason."""
    return _head(bar) | {
        "group": group.name,
        "measured": None,
        "unit": bar.unit,
        "met": None,
        "certain": None,
        "ours": None,
        "theirs": None,
        "candidates": [],
        "trials": 0,
        "not_measured": reason,
        "failed": failed,
    }


def _head(bar: Bar) -> dict[str, Any]:
    return {
        "name": bar.name,
        "issue": bar.issue,
        "title": bar.title,
        "metric": bar.metric,
        "size": bar.size,
        "bar": {"at_most" if bar.at_most is not None else "at_least": bar.limit},
        "source": bar.source,
        "notes": [bar.note] if bar.note else [],
    }
