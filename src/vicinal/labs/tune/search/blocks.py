"""Runs trials in blocks within a budget, and replays the trials of an interrupted search.

A search is a function of its seed and of its trials' results. So to continue means to start again,
and to take each trial from the record as long as the record has one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Point, Space
from vicinal.labs.tune.search.trial import (
    Measure,
    Measured,
    SearchEndsError,
    Stage,
    Trial,
    fault_of,
)

_PRESENT_FAILURES = 3
"""Failed trials of the present setting in a row after which the search ends."""


@dataclass(frozen=True)
class Budget:
    """How much a search may measure; at least one limit is given."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        given = [each for each in (self.trials, self.seconds) if each is not None]
        if not given or min(given) <= 0:
            raise VicinalError(
                "a search without a budget would not end",
                "set a number of trials or seconds above zero",
            )


class Blocks:
    """Runs blocks of trials, and counts trials and seconds."""

    def __init__(
        self,
        space: Space,
        objectives: Mapping[str, Sequence[Objective]],
        measure: Measure,
        budget: Budget,
        *,
        seed: int,
        recorded: Iterable[Trial] = (),
        record: Callable[[Trial], None] = lambda _: None,
    ) -> None:
        self.space = space
        self.objectives = dict(objectives)
        """By phase."""
        self.random = np.random.default_rng(seed)
        self.trials: list[Trial] = []
        self._measure = measure
        self._budget = budget
        self._recorded = iter(tuple(recorded))
        self._record = record
        self._blocks = 0
        self._seconds = 0.0
        self._present_failures = 0

    def run(self, phase: str, stage: Stage, points: Sequence[Point]) -> dict[Point, Trial]:
        """Run one block: the present setting and each of `points` once, in random order.

        Raises VicinalError if the present setting fails too often in a row, or if a recorded trial
        is not the next trial of this search. Raises SearchEndsError as `measure`.
        """
        members = list(dict.fromkeys([self.space.present, *points]))
        order = self.random.permutation(len(members))
        found = {}
        for position, member in enumerate(order):
            point = members[int(member)]
            found[point] = self._trial(phase, stage, position, point)
        self._blocks += 1
        self._watch_present(found[self.space.present])
        return found

    def left(self) -> int:
        """Number of trials that the budget still allows; seconds count by the mean trial."""
        allowed = []
        if self._budget.trials is not None:
            allowed.append(self._budget.trials - len(self.trials))
        if self._budget.seconds is not None:
            if not self.trials:
                return allowed[0] if allowed else 1 << 30  # no trial has run yet
            mean = max(self._seconds / len(self.trials), 1e-9)
            allowed.append(int((self._budget.seconds - self._seconds) / mean))
        return max(0, min(allowed))

    def _trial(self, phase: str, stage: Stage, position: int, point: Point) -> Trial:
        setting = self.space.setting(point)
        key = (len(self.trials), phase, stage, self._blocks, position, setting)
        trial = next(self._recorded, None)
        if trial is None:
            trial = self._run(key)
            self._record(trial)
        else:
            _check_recorded(trial, key)
        self.trials.append(trial)
        self._seconds += trial.seconds
        return trial

    def _run(self, key: tuple[int, str, Stage, int, int, dict[str, int | float | str]]) -> Trial:
        began = monotonic()
        measured, error = Measured({}), None
        try:
            measured = self._measure(key[5], key[1])
            error = fault_of(measured.values, self.objectives[key[1]])
        except SearchEndsError:
            raise
        except VicinalError as failure:
            error = str(failure)
        values = {} if error else dict(measured.values)
        return Trial(*key, values, dict(measured.evidence), monotonic() - began, error)

    def _watch_present(self, trial: Trial) -> None:
        self._present_failures = self._present_failures + 1 if trial.failed else 0
        if self._present_failures == _PRESENT_FAILURES:
            raise VicinalError(
                f"the present setting failed in {_PRESENT_FAILURES} blocks in a row "
                f"({trial.error})",
                "make the workload run with the present setting, and continue",
            )


def _check_recorded(trial: Trial, key: tuple[object, ...]) -> None:
    recorded = (trial.number, trial.phase, trial.stage, trial.block, trial.position)
    if recorded != key[:5] or trial.setting != key[5]:
        raise VicinalError(
            f"recorded trial {trial.number} is not the one that this search would run next",
            "continue with the file, seed and version that began the search, or start again",
        )
