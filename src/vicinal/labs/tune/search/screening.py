"""Screening: finds the important knobs, and predicts the settings that deserve more trials."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import nsmallest
from itertools import product

import numpy as np
from numpy.typing import NDArray

from vicinal.labs.statistics.samples import Floats
from vicinal.labs.tune.search.blocks import Blocks
from vicinal.labs.tune.search.design import Effects, Levels, draw_block, fit_effects, levels_of
from vicinal.labs.tune.search.mechanism import interrupts_of
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Point, Space
from vicinal.labs.tune.search.trial import Stage, Trial

KEEPING = 0.2
"""Knobs with a p-value up to this are kept. Keeping a knob without an effect costs trials; dropping
a knob with an effect costs the optimum. No claim follows from this value.
"""

_FEWEST, _MOST = 2, 6
"""Fewest and most knobs that are kept, whatever their p-values."""

_COMBINATIONS = 200_000
"""Limit of predicted settings; beyond it, the least important knobs are dropped."""


@dataclass(frozen=True)
class KnobEffect:
    """The effect of one knob on one objective."""

    knob: str
    objective: Objective
    ratio: float
    """Ratio of the best level's value to the present one's, over all values of the other knobs."""
    level: str
    """The best level."""
    p_value: float
    interrupts_p_value: float | None
    """Of the hypothesis that levels do not change the interrupts; None if none were counted."""

    to_dict = asdict


@dataclass(frozen=True)
class Pool:
    """The candidates for halving."""

    points: tuple[Point, ...]
    knobs: tuple[int, ...]
    """Knobs that vary from here on."""
    effects: tuple[KnobEffect, ...] = ()
    screened: bool = True
    """Whether a screening measured the effects and chose the knobs."""


def whole_pool(space: Space) -> Pool:
    """All settings, for a space so small that it needs no screening."""
    points = product(*(range(len(row)) for row in space.rows))
    others = tuple(point for point in points if point != space.present)
    knobs = tuple(at for at, row in enumerate(space.rows) if len(row) > 1)
    return Pool(others, knobs, screened=False)


def trials_to_screen(space: Space) -> int:
    """The fewest trials of a screening: two runs for each effect, and the present setting in each
    block.
    """
    levels = _levels(space)
    runs = max(len(each) for each in levels)
    effects = sum(len(each) - 1 for each in levels)
    return -(-2 * effects // runs) * (runs + 1)


def screen(blocks: Blocks, phase: str, trials: int, most: int) -> Pool:
    """Screen all knobs with about `trials` trials, and choose at most `most` settings."""
    space = blocks.space
    levels = _levels(space)
    runs = max(len(each) for each in levels)
    trials = max(trials, trials_to_screen(space))
    done: list[tuple[Point, Trial]] = []
    for _ in range(trials // (runs + 1)):
        if blocks.left() < runs + 1:
            break
        found = blocks.run(phase, Stage.SCREENING, draw_block(levels, blocks.random))
        done += [(point, trial) for point, trial in found.items() if not trial.failed]
    by_objective, interrupts = _fitted(blocks, phase, levels, done)
    knobs = _important(space, by_objective)
    return Pool(
        _best(space, levels, by_objective, knobs, most),
        knobs,
        tuple(_described(space, levels, by_objective, interrupts)),
    )


def effects_seen(blocks: Blocks, phase: str) -> tuple[KnobEffect, ...]:
    """The effects of all knobs in a phase's trials so far, for a search without screening."""
    space = blocks.space
    levels: list[Levels] = [tuple(range(len(row))) for row in space.rows]
    done = [
        (space.point(trial.setting), trial)
        for trial in blocks.trials
        if trial.phase == phase and not trial.failed
    ]
    return tuple(_described(space, levels, *_fitted(blocks, phase, levels, done)))


def _fitted(
    blocks: Blocks, phase: str, levels: Sequence[Levels], done: Sequence[tuple[Point, Trial]]
) -> tuple[dict[Objective, Effects], Effects | None]:
    """Fit the additive model of each objective, and of the number of interrupts."""
    points = np.array([point for point, _ in done], dtype=np.int64).reshape(-1, len(levels))
    numbers = np.array([trial.block for _, trial in done], dtype=np.int64)

    def fitted(values: Sequence[float]) -> Effects | None:
        try:
            return fit_effects(points, numbers, np.array(values), levels, blocks.space.present)
        except (ValueError, np.linalg.LinAlgError):
            return None  # too few trials: most failed, or the budget ended

    by_objective = {
        objective: effects
        for objective in blocks.objectives[phase]
        if (effects := fitted([trial.cost(objective) for _, trial in done])) is not None
    }
    counts = [interrupts_of(trial.evidence) for _, trial in done]
    interrupts = None
    if counts and all(count is not None for count in counts):
        interrupts = fitted([float(np.log1p(count)) for count in counts if count is not None])
    return by_objective, interrupts


def _levels(space: Space) -> list[Levels]:
    return [
        levels_of(len(row), now) if space.is_numeric(at) else tuple(range(len(row)))
        for at, (row, now) in enumerate(zip(space.rows, space.present, strict=True))
    ]


def _important(space: Space, found: Mapping[Objective, Effects]) -> tuple[int, ...]:
    """The important knobs, in their order, by the smallest p-value over all objectives."""
    several = [at for at, row in enumerate(space.rows) if len(row) > 1]
    p_values = {at: min((e.p_values[at] for e in found.values()), default=1.0) for at in several}
    ordered = sorted(several, key=lambda at: p_values[at])
    kept = [at for at in ordered if p_values[at] <= KEEPING]
    kept = kept[:_MOST] if len(kept) >= _FEWEST else ordered[:_FEWEST]
    while np.prod([len(space.rows[at]) for at in kept]) > _COMBINATIONS:
        kept.pop()
    return tuple(sorted(kept))


def _best(
    space: Space,
    levels: Sequence[Levels],
    found: Mapping[Objective, Effects],
    knobs: Sequence[int],
    most: int,
) -> tuple[Point, ...]:
    """The settings of these knobs with the lowest predicted costs, by each objective in turn."""
    combinations = np.array(
        list(product(*(range(len(space.rows[at])) for at in knobs))), dtype=np.int64
    )
    orders: list[NDArray[np.int64]] = []
    for effects in found.values():
        cost = np.zeros(len(combinations))
        for column, at in enumerate(knobs):
            cost += along_row(levels[at], effects.knobs[at], space, at)[combinations[:, column]]
        orders.append(np.array(nsmallest(most + 1, range(len(cost)), key=cost.__getitem__)))
    chosen: dict[Point, None] = {}
    for rank in range(most + 1):
        for order in orders:
            if rank < len(order):
                point = list(space.present)
                for at, level in zip(knobs, combinations[order[rank]], strict=True):
                    point[at] = int(level)
                chosen[tuple(point)] = None
    chosen.pop(space.present, None)
    return tuple(chosen)[:most]


def along_row(levels: Levels, effects: Floats, space: Space, knob: int) -> Floats:
    """The effect of each index of a row.

    Numbers that were not tried get an interpolated effect. Words that were not tried get 0, the
    present value's effect.
    """
    indices = np.arange(len(space.rows[knob]))
    if space.is_numeric(knob):
        return np.interp(indices, levels, effects)
    known = np.zeros(len(indices))
    known[list(levels)] = effects
    return known


def _described(
    space: Space,
    levels: Sequence[Levels],
    found: Mapping[Objective, Effects],
    interrupts: Effects | None,
) -> list[KnobEffect]:
    described = []
    for objective, effects in found.items():
        for at, name in enumerate(space.names):
            if len(space.rows[at]) == 1:
                continue
            best = int(np.argmin(effects.knobs[at]))
            described.append(
                KnobEffect(
                    name,
                    objective,
                    objective.ratio(float(effects.knobs[at][best])),
                    str(space.rows[at][levels[at][best]]),
                    effects.p_values[at],
                    interrupts.p_values[at] if interrupts else None,
                )
            )
    return described
