"""The screening's design, and the effect of each value of each knob.

A block has as many runs as the knob with most levels has levels. Within a block, each level of a
knob appears equally often, in a random order for each knob (a Latin hypercube sample of the
levels). So each run says something about all knobs at once, as in a design by Plackett and Burman,
but about all levels. An optimum inside a row, as interrupt moderation has it, is not missed.

Effects are those of an additive model of costs with a term for each block, fitted with Huber's
loss, because some trials are disturbed. A knob's test is the F-test of its levels in that model, on
Huber's pseudo-values (Huber 1973), which bound the residuals of outliers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from vicinal.labs.statistics.samples import Floats

Levels = tuple[int, ...]
"""Indices in a knob's row of the values that are tried."""

MOST_LEVELS = 5
"""Most levels that are screened; halving chooses from all values."""

_TUNING = 1.345
"""Huber's constant: 95 % of the efficiency of least squares with normal noise."""

_ITERATIONS, _CLOSE, _RIDGE = 20, 1e-4, 1e-6
"""Limit of iterations; relative change at which the fit ends, 0.01 %; ridge term."""

_TO_DEVIATION = 1.4826
"""Factor from the median of absolute residuals to a normal distribution's standard deviation."""


@dataclass(frozen=True)
class Effects:
    """Effects of levels as differences of costs from the present level."""

    knobs: tuple[Floats, ...]
    """For each knob, one value for each level; 0 at the present level."""
    p_values: tuple[float, ...]
    """For each knob, of the hypothesis that its levels do not differ; 1 for a single level."""


def levels_of(length: int, present: int) -> Levels:
    """Indices of a row to screen: its ends, the present value, and some in between."""
    if length <= MOST_LEVELS:
        return tuple(range(length))
    even = np.linspace(0, length - 1, MOST_LEVELS - 1).round().astype(int)
    return tuple(sorted({*even.tolist(), present}))


def draw_block(levels: Sequence[Levels], random: np.random.Generator) -> list[tuple[int, ...]]:
    """The points of one block."""
    runs = max(len(each) for each in levels)
    columns = []
    for each in levels:
        rest = random.permutation(each)[: runs % len(each)]
        columns.append(random.permutation([*(list(each) * (runs // len(each))), *rest]))
    return [tuple(int(level) for level in row) for row in np.column_stack(columns)]


def fit_effects(
    points: NDArray[np.int64],
    blocks: NDArray[np.int64],
    costs: Floats,
    levels: Sequence[Levels],
    present: Sequence[int],
    *,
    test: bool = True,
) -> Effects:
    """Fit the effects to runs.

    `points` has a row for each run and a column for each knob; `blocks` and `costs` have a value
    for each run. Without `test`, all p-values are 1. Raises ValueError if there are not more runs
    than effects.
    """
    order = np.argsort(blocks, kind="stable")
    points, costs = points[order], costs[order]
    _, begins, sizes = np.unique(blocks[order], return_index=True, return_counts=True)
    others = [
        [level for level in row if level != now] for row, now in zip(levels, present, strict=True)
    ]
    model = np.hstack(
        [
            points[:, [at]] == np.array(others_of_knob, dtype=int)
            for at, others_of_knob in enumerate(others)
        ]
    ).astype(np.float64)
    freedom = len(costs) - len(begins) - model.shape[1]
    if freedom < 1:
        raise ValueError(f"{len(costs)} runs are too few for {model.shape[1]} effects")
    found, pulled, inside = _huber(model, costs, begins, sizes)
    ends = np.cumsum([0, *map(len, others)])
    effects, p_values = [], [1.0] * len(levels)
    for knob, (others_of_knob, row) in enumerate(zip(others, levels, strict=True)):
        values = found[ends[knob] : ends[knob + 1]].tolist()
        by_level = dict(zip(others_of_knob, values, strict=True))
        effects.append(np.array([by_level.get(level, 0.0) for level in row]))
    if test:
        within, rest = _centred(model, begins, sizes), _centred(pulled, begins, sizes)
        rank = int(np.linalg.matrix_rank(within))
        freedom = len(costs) - len(begins) - rank
        # The fit shrinks residuals as well: Huber's correction for many terms.
        share = (len(begins) + rank) / len(costs)
        squares = _squares(within, rest)
        error = (1 + share * (1 - inside) / inside) ** 2 * squares / freedom
        for knob in range(len(levels)):
            without = np.delete(within, np.s_[ends[knob] : ends[knob + 1]], axis=1)
            lost = rank - int(np.linalg.matrix_rank(without))
            more = _squares(without, rest) - squares
            p_values[knob] = _p_value(more, lost, error, freedom)
    return Effects(tuple(effects), tuple(p_values))


def _huber(
    model: Floats, costs: Floats, begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[Floats, Floats, float]:
    """Coefficients by iteratively reweighted least squares, pseudo-values, and the share of
    residuals within the bound.

    SciPy's least_squares has this loss and takes thirty times as long, because it does not know
    that the model is linear. Block terms are first removed from both sides (Frisch, Waugh and
    Lovell). Sums use einsum instead of BLAS, whose threads wait for each other on a busy host.
    """
    weights = np.ones(len(costs))
    found: Floats = np.zeros(model.shape[1])
    for _ in range(_ITERATIONS):
        before = found
        within, rest = (_centred(each, begins, sizes, weights) for each in (model, costs))
        weighted = within * weights[:, np.newaxis]
        normal = np.einsum("ij,ik->jk", weighted, within)
        normal[np.diag_indices_from(normal)] += _RIDGE  # columns may be linearly dependent
        right = np.einsum("ij,i->j", weighted, rest)
        found = np.asarray(np.linalg.solve(normal, right), dtype=np.float64)
        residuals = rest - np.einsum("ij,j->i", within, found)
        away = np.abs(residuals)
        # Never zero: half of the residuals may be zero if levels or blocks have a single run.
        scale = max(_TO_DEVIATION * float(np.median(away)), 1e-3 * float(away.max()), 1e-12)
        bound = _TUNING * scale
        weights = bound / np.maximum(away, bound)
        if float(np.abs(found - before).max(initial=0.0)) < _CLOSE:
            break
    inside = max(float((away <= bound).mean()), 0.5)
    return found, costs - residuals + np.clip(residuals, -bound, bound) / inside, inside


def _centred(
    values: Floats,
    begins: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: Floats | None = None,
) -> Floats:
    """Values minus their block's weighted mean; the rows of a block are consecutive."""
    weights = np.ones(len(values)) if weights is None else weights
    each = weights if values.ndim == 1 else weights[:, np.newaxis]
    total = np.add.reduceat(weights, begins)
    means = np.add.reduceat(values * each, begins, axis=0)
    means = (means.T / total).T
    return np.asarray(values - np.repeat(means, sizes, axis=0), dtype=np.float64)


def _squares(model: Floats, values: Floats) -> float:
    rest = values - model @ np.linalg.lstsq(model, values, rcond=None)[0]
    return float(rest @ rest)


def _p_value(more: float, lost: int, error: float, freedom: int) -> float:
    """The F-test's p-value of a knob: without it, the sum of squares grows by `more`, and the model
    has `lost` fewer terms.
    """
    if lost == 0:
        return 1.0
    if error <= 0:
        return 0.0 if more > 0 else 1.0
    return float(special.fdtrc(lost, freedom, max(more, 0.0) / lost / error))
