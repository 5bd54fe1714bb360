"""Candidates by Optuna instead of by screening: its sampler is asked for settings and told costs.

Each block has some settings that were asked for and the present one; what is told is the difference
of costs, so that the machine's drift is not taken for a setting's merit. What comes after, halving
and confirmation, is the same. Optuna is optional: its sampler is loaded when it is asked for.
"""

import warnings
from collections import defaultdict
from typing import Any

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.search.blocks import Blocks
from vicinal.labs.tune.search.screening import Pool
from vicinal.labs.tune.search.space import Point, Space
from vicinal.labs.tune.search.trial import Stage

_ASKED = 4
"""Settings of a block."""


def propose(blocks: Blocks, phase: str, trials: int, most: int, seed: int) -> Pool:
    """Ask and tell with about so many trials, and choose the best `most` settings.

    Raises VicinalError if Optuna is not installed.
    """
    optuna = _optuna()
    space = blocks.space
    objectives = blocks.objectives[phase]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=24)
    study = optuna.create_study(directions=["minimize"] * len(objectives), sampler=sampler)
    choices = _choices(optuna, space)
    costs: dict[Point, list[list[float]]] = defaultdict(list)
    failed: set[Point] = set()
    for _ in range(max(1, trials // (_ASKED + 1))):
        if blocks.left() < _ASKED + 1:
            break
        asked = [study.ask(choices) for _ in range(_ASKED)]
        points = [tuple(int(each.params[name]) for name in space.names) for each in asked]
        found = blocks.run(phase, Stage.SCREENING, points)
        present = found[space.present]
        for each, point in zip(asked, points, strict=True):
            trial = found[point]
            if trial.failed or present.failed:
                failed |= {point} if trial.failed and not present.failed else set()
                study.tell(each, state=optuna.trial.TrialState.FAIL)
                continue
            difference = [trial.cost(which) - present.cost(which) for which in objectives]
            study.tell(each, difference)
            costs[point].append(difference)
    return Pool(_best(costs, failed, space.present, most), _several(space))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise VicinalError(
            f"Optuna cannot be used ({error})",
            "install it with pip, or leave the search to its own screening",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _choices(optuna: Any, space: Space) -> dict[str, Any]:
    """A knob's places as numbers in order, or as mere names where its values are words."""
    found: dict[str, Any] = {}
    for at, (name, row) in enumerate(space.knobs.items()):
        if space.is_numeric(at):
            found[name] = optuna.distributions.IntDistribution(0, len(row) - 1)
        else:
            found[name] = optuna.distributions.CategoricalDistribution(range(len(row)))
    return found


def _best(
    costs: dict[Point, list[list[float]]], failed: set[Point], present: Point, most: int
) -> tuple[Point, ...]:
    """The settings with the lowest median costs, of each objective in turn."""
    points = [point for point in costs if point != present and point not in failed]
    if not points:
        return ()
    medians = np.array([np.median(costs[point], axis=0) for point in points])
    orders = np.argsort(medians, axis=0, kind="stable")
    return tuple(dict.fromkeys(points[int(at)] for rank in orders for at in rank))[:most]


def _several(space: Space) -> tuple[int, ...]:
    return tuple(at for at, row in enumerate(space.rows) if len(row) > 1)
