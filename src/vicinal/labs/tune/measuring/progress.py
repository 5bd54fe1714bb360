"""The progress of a search, in the view of a running study."""

from collections.abc import Iterator
from statistics import median

from vicinal.labs.study.running.view import Shown, View
from vicinal.labs.tune.search.finding import Plan
from vicinal.labs.tune.search.space import Setting, Space
from vicinal.labs.tune.search.trial import Trial


class Progress:
    """Counts trials, and shows the next trial in the view."""

    def __init__(self, space: Space, plan: Plan, view: View, expected: float) -> None:
        """`expected` estimates the seconds of a trial until the first trial has ended."""
        self._space = space
        self._plan = plan
        self._view = view
        self._expected = expected
        self._trials: list[Trial] = []
        self._failures = 0

    @property
    def done(self) -> int:
        """Number of ended trials, including those of earlier runs."""
        return len(self._trials)

    @property
    def block(self) -> int:
        """The block of the last trial, from 1; the number of blocks depends on the results."""
        return self._trials[-1].block + 1 if self._trials else 1

    def add(self, trial: Trial) -> None:
        """Count an ended trial."""
        self._trials.append(trial)
        self._failures += trial.failed

    def say(self, what: str) -> None:
        """Write a line about the present trial."""
        self._view.warn(f"trial {self.done}: {what}")

    def begin(self, setting: Setting, phase: str) -> None:
        """Show that a trial begins."""
        changes = self._space.changes(self._space.point(setting))
        words = ", ".join(f"{name} {after}" for name, (_, after) in changes.items())
        stage = f"{self._trials[-1].stage}, " if self._trials else ""
        self._view.show(
            Shown(
                now=f"{stage}{phase}: {words or 'the present setting'}",
                block=self.block,
                blocks=None,
                trials=self.done,
                planned=max(self._planned(), self.done + 1),
                seconds_left=self._mean * max(1, self._planned() - self.done),
                failures=self._failures,
                estimates=list(self._rows()),
            )
        )

    @property
    def _mean(self) -> float:
        """Mean seconds of a trial."""
        if not self._trials:
            return self._expected
        return sum(each.seconds for each in self._trials) / self.done

    def _planned(self) -> int:
        """The largest number of trials of the whole search."""
        budget, allowed = self._plan.budget, []
        if budget.trials is not None:
            allowed.append(budget.trials)
        if budget.seconds is not None:
            allowed.append(int(budget.seconds / self._mean))
        return min(allowed, default=0)

    def _rows(self) -> Iterator[list[str]]:
        """For each phase and objective: the present setting's value, and the best value so far."""
        rows = list(self._of_phases())
        if rows:
            yield ["", "objective", "present", "best so far"]
            yield from rows

    def _of_phases(self) -> Iterator[list[str]]:
        present = self._space.setting(self._space.present)
        for phase, objectives in self._plan.by_phase.items():
            good = [each for each in self._trials if each.phase == phase and not each.failed]
            by_setting: dict[str, list[Trial]] = {}
            for trial in good:
                by_setting.setdefault(str(dict(trial.setting)), []).append(trial)
            ours = by_setting.pop(str(present), [])
            for objective in objectives:
                if not ours:
                    continue
                found = [
                    median(each.values[objective] for each in trials)
                    for trials in by_setting.values()
                    if len(trials) > 1
                ]
                chosen = min if objective.lower_is_better else max
                best = f"{chosen(found):.3g}" if found else "-"
                now = median(each.values[objective] for each in ours)
                yield [phase, f"{objective.label}, {objective.unit}", f"{now:.3g}", best]
