"""Candidates near the best settings so far, and their expected costs, from all trials.

The additive model of the screening is fitted again to all trials so far. Halving measured most
where costs are low. So the new model is best near the best settings, and knobs that the screening
left out can return.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vicinal.labs.statistics.samples import Floats
from vicinal.labs.tune.search.blocks import Blocks
from vicinal.labs.tune.search.design import fit_effects
from vicinal.labs.tune.search.halving import Scores
from vicinal.labs.tune.search.screening import along_row
from vicinal.labs.tune.search.space import Point


def promising(blocks: Blocks, scores: Scores, leader: Point, count: int) -> list[Point]:
    """Settings near the leader without scores, those with the lowest predicted costs first.

    Near means one step of one knob from the leader, or one step of two knobs.
    """
    space = blocks.space
    every = range(len(space.rows))
    known = {*scores.known(), *scores.failed, space.present}
    near = dict.fromkeys(space.neighbours(leader, every))
    near |= dict.fromkeys(
        second for first in list(near) for second in space.neighbours(first, every)
    )
    points = [point for point in near if point not in known]
    if not points:
        return []
    chosen: dict[Point, None] = {}
    costs = _predicted(blocks, scores, np.array(points))
    orders = [np.argsort(cost, kind="stable") for cost in costs if cost is not None]
    for rank in range(len(points)):
        for order in orders:
            chosen[points[int(order[rank])]] = None
    return list(chosen)[:count]


def expect(blocks: Blocks, scores: Scores, points: Sequence[Point]) -> None:
    """Store the model's predictions for some settings, towards which their scores are shrunk."""
    if not points:
        return
    costs = _predicted(blocks, scores, np.array([blocks.space.present, *points]))
    for objective, found in zip(blocks.objectives[scores.phase], costs, strict=True):
        if found is None:
            continue
        for point, cost in zip(points, found[1:] - found[0], strict=True):
            scores.expected[point, objective] = float(cost)


def _predicted(
    blocks: Blocks, scores: Scores, candidates: NDArray[np.int64]
) -> list[Floats | None]:
    """The predicted cost of each point by objective; None if there are too few trials for a
    model.
    """
    space = blocks.space
    trials = [each for each in blocks.trials if each.phase == scores.phase and not each.failed]
    points = np.array([space.point(trial.setting) for trial in trials])
    numbers = np.array([trial.block for trial in trials])
    levels = [tuple(np.unique(column).tolist()) for column in points.T]
    found: list[Floats | None] = []
    for objective in blocks.objectives[scores.phase]:
        costs = np.array([trial.cost(objective) for trial in trials])
        try:
            effects = fit_effects(points, numbers, costs, levels, space.present, test=False)
        except (ValueError, np.linalg.LinAlgError):
            found.append(None)
            continue
        found.append(
            np.sum(
                [
                    along_row(levels[at], effects.knobs[at], space, at)[candidates[:, at]]
                    for at in range(len(levels))
                ],
                axis=0,
            )
        )
    return found
