"""A search, from its first trial to its choice."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.least_pairs import ALPHA
from vicinal.labs.tune.search.blocks import Blocks, Budget
from vicinal.labs.tune.search.choosing import Choice, Outcome, choose
from vicinal.labs.tune.search.confirming import Confirmation, blocks_needed, confirm
from vicinal.labs.tune.search.halving import Scores, halve
from vicinal.labs.tune.search.mechanism import Mechanism, mechanism
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.refining import expect, promising
from vicinal.labs.tune.search.screening import (
    Pool,
    effects_seen,
    screen,
    trials_to_screen,
    whole_pool,
)
from vicinal.labs.tune.search.space import Point, Space
from vicinal.labs.tune.search.trial import Measure, Stage, Trial

_POOL = 16
"""Number of settings that halving begins with, and largest space that needs no screening."""

_SCREENING, _HALVING = 0.25, 1 / 3
"""Screening's share of a phase's trials before its confirmation, and halving's share of the rest;
the remainder is for refining.
"""

_REFINEMENTS = 3

_LEADERS, _REFINED = 4, 12
"""In refining: number of the best so far, and number of all candidates together."""


@dataclass(frozen=True)
class Plan:
    """The objectives, phases and budget of a search."""

    objectives: tuple[Objective, ...]
    """Of all phases without objectives of their own."""
    budget: Budget
    phases: tuple[str, ...] = ("all",)
    """Parts of the application, or workloads, that may have their own settings."""
    seed: int = 1
    alpha: float = ALPHA
    confirmation: int = 30
    """Fresh blocks of each phase for the confirmation of finalists."""
    own_objectives: Mapping[str, tuple[Objective, ...]] = field(default_factory=dict)
    """By phase, instead of `objectives`."""

    to_dict = asdict

    def __post_init__(self) -> None:
        _check_each_once("phase", self.phases)
        for each in self.by_phase.values():
            _check_each_once("objective", each)

    @property
    def by_phase(self) -> dict[str, tuple[Objective, ...]]:
        """The objectives of each phase, in the order of phases."""
        return {phase: self.own_objectives.get(phase, self.objectives) for phase in self.phases}

    def finalists(self, phase: str) -> int:
        """Number of finalists of a phase: the best by each objective, and a compromise of
        several.
        """
        objectives = self.by_phase[phase]
        return len(objectives) + (len(objectives) > 1)

    @property
    def confirmation_trials(self) -> int:
        """The largest number of trials in the confirmation: every finalist runs in every phase."""
        finalists = sum(map(self.finalists, self.phases))
        family = finalists * sum(map(len, self.by_phase.values()))
        blocks = max(self.confirmation, blocks_needed(family, self.alpha))
        return blocks * (finalists + 1) * len(self.phases)


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    space: Space
    plan: Plan
    trials: tuple[Trial, ...]
    pools: dict[str, Pool]
    """By phase."""
    finalists: dict[str, tuple[Point, ...]]
    failed: dict[Point, str]
    """Settings with a failed trial, and its error."""
    confirmation: Confirmation
    choice: Choice
    mechanisms: dict[str, Mechanism]
    """By phase, for phases with a better setting."""

    def to_dict(self) -> dict[str, Any]:
        """The result as data for JSON, without the trials, which have their own file."""
        return {
            "knobs": {name: list(row) for name, row in self.space.knobs.items()},
            "present": self.space.setting(self.space.present),
            "plan": self.plan.to_dict(),
            "trials": len(self.trials),
            "effects": {
                phase: [each.to_dict() for each in pool.effects]
                for phase, pool in self.pools.items()
            },
            "finalists": {
                phase: [self.space.setting(point) for point in points]
                for phase, points in self.finalists.items()
            },
            "failed": [
                {"setting": self.space.setting(point), "why": why}
                for point, why in self.failed.items()
            ],
            "comparisons": [
                {**each.to_dict(), "point": self.space.setting(each.point)}
                for each in self.confirmation.compared
            ],
            "phases": [
                {
                    "phase": each.phase,
                    "outcome": each.outcome,
                    "setting": self.space.setting(each.choice),
                    "pareto": [self.space.setting(point) for point in each.pareto],
                }
                for each in self.choice.phases
            ],
            "common": None
            if self.choice.common is None
            else self.space.setting(self.choice.common),
            "mechanisms": {phase: each.to_dict() for phase, each in self.mechanisms.items()},
        }


def find(
    space: Space,
    plan: Plan,
    measure: Measure,
    *,
    recorded: Iterable[Trial] = (),
    record: Callable[[Trial], None] = lambda _: None,
) -> Found:
    """Run the search.

    `record` gets each new trial when it ends. `recorded` are the trials, in order, of an
    interrupted run of the same search, which are not run again. Raises VicinalError if the budget
    is too small to claim anything, and as Blocks.run().
    """
    blocks = Blocks(
        space,
        plan.by_phase,
        measure,
        plan.budget,
        seed=plan.seed,
        recorded=recorded,
        record=record,
    )
    for phase in plan.phases:
        # the first trial shows whether the phase can be measured, and how long a trial takes
        blocks.run(phase, Stage.SCREENING, ())
    _check_budget(space, plan, blocks)
    pools: dict[str, Pool] = {}
    finalists: dict[str, tuple[Point, ...]] = {}
    failed: dict[Point, str] = {}
    for phases_left, phase in zip(range(len(plan.phases), 0, -1), plan.phases, strict=True):
        allowed = (blocks.left() - plan.confirmation_trials) // phases_left
        end = len(blocks.trials) + allowed
        scores = Scores(blocks, phase)
        pools[phase] = _pool(blocks, phase, int(allowed * _SCREENING))
        left = end - len(blocks.trials)
        finalists[phase] = tuple(_narrow(blocks, plan, pools[phase], scores, left))
        failed |= scores.failed
        if not pools[phase].screened:
            pools[phase] = replace(pools[phase], effects=effects_seen(blocks, phase))
    members = dict.fromkeys(point for points in finalists.values() for point in points)
    confirmation = confirm(
        blocks,
        plan.phases,
        [point for point in members if point not in failed],
        wanted=plan.confirmation,
        alpha=plan.alpha,
    )
    choice = choose(confirmation, space.present, plan.by_phase)
    return Found(
        space,
        plan,
        tuple(blocks.trials),
        pools,
        finalists,
        failed | dict(confirmation.failed),
        confirmation,
        choice,
        _mechanisms(choice, confirmation, space.present),
    )


def _check_each_once(what: str, names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise VicinalError(
            f"a search has no {what}, or has one twice", f"write at least one {what}, each once"
        )


def trials_needed(space: Space, plan: Plan) -> int:
    """The fewest trials of a whole search, with its confirmation."""
    return len(plan.phases) * (1 + _least(space)) + plan.confirmation_trials


def _least(space: Space) -> int:
    """The fewest trials of a phase before its confirmation: screening, and two blocks of each
    round.
    """
    if space.size - 1 <= _POOL:
        return 4 * space.size
    return round(trials_to_screen(space) / _SCREENING)


def _check_budget(space: Space, plan: Plan, blocks: Blocks) -> None:
    needed = trials_needed(space, plan)
    if len(blocks.trials) + blocks.left() >= needed:
        return
    budget = plan.budget
    seconds = sum(trial.seconds for trial in blocks.trials) / len(blocks.trials)
    given = [f"{budget.trials} trials"] if budget.trials is not None else []
    given += [f"{budget.seconds:g} s"] if budget.seconds is not None else []
    raise VicinalError(
        f"a budget of {' and '.join(given)} is too small for this search, which needs {needed} "
        f"trials; the first trials took {seconds:.2g} s each",
        "raise the budget, or use fewer knobs, values, objectives or phases",
    )


def _pool(blocks: Blocks, phase: str, trials: int) -> Pool:
    if blocks.space.size - 1 <= _POOL:
        return whole_pool(blocks.space)
    return screen(blocks, phase, trials, _POOL)


def _narrow(
    blocks: Blocks, plan: Plan, pool: Pool, scores: Scores, allowed: int
) -> Sequence[Point]:
    """The finalists of a phase: halves the pool, and then the best settings with their
    neighbours.
    """
    keep = plan.finalists(scores.phase)
    end = len(blocks.trials) + allowed
    trials = int(allowed * _HALVING)
    expect(blocks, scores, pool.points)
    best = halve(blocks, scores, Stage.HALVING, pool.points, trials=trials, keep=max(keep, 2))
    for rest in range(_REFINEMENTS, 0, -1):
        points = [*best, *scores.best(scores.known(), _LEADERS)]
        points = list(dict.fromkeys(points))
        points += promising(blocks, scores, best[0], _REFINED - len(points)) if best else []
        expect(blocks, scores, points)
        trials = (end - len(blocks.trials)) // rest
        best = halve(blocks, scores, Stage.REFINING, points, trials=trials, keep=keep)
    return best


def _mechanisms(choice: Choice, confirmation: Confirmation, present: Point) -> dict[str, Mechanism]:
    found = {}
    for each in choice.phases:
        if each.outcome is Outcome.BETTER:
            blocks = confirmation.blocks[each.phase]
            ours, theirs = (
                [block[point].evidence for block in blocks] for point in (each.choice, present)
            )
            found[each.phase] = mechanism(ours, theirs, confirmation.alpha)
    return found
