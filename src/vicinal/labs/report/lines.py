"""The rule about lines between points, and its check on drawn plots.

A line says that the values between two points are known. Between near sizes they can be read off.
Between sizes that are further apart, messages use other protocols. Between two environments there
is nothing. The check looks at the drawn plots, so that this rule of benchmarking is verified and
not only promised.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vicinal.labs.report.axes import position
from vicinal.labs.report.drawing import Plot
from vicinal.labs.study.analysis.summary import RuleChecked

JOINED = 16
"""A line may not join sizes that differ by more than this factor: in between, messages use other
protocols, which nobody measured."""

RULE = "lines"


def may_be_joined(smaller: int, larger: int) -> bool:
    """Whether a line may join two sizes."""
    return larger <= JOINED * max(smaller, 1)


def with_gaps(sizes: Sequence[int]) -> Iterator[int | None]:
    """The sizes in their order, with None between two sizes that no line may join."""
    yield from sizes[:1]
    for before, size in pairwise(sizes):
        if not may_be_joined(before, size):
            yield None
        yield size


def wrong_lines(plot: Plot, workload: str) -> Iterator[str]:
    """Phrases about lines of a drawn plot that break the rule, with environment and workload.

    Lines without data, such as the line at a ratio of 1, join nothing.
    """
    if plot.continuous:
        return
    sizes = {round(position(size, plot.sizes), 6): size for size in plot.sizes}
    for line, left, right in _segments(plot.figure):
        where = f"{line.get_label()}, {workload}"
        ends = sorted((sizes.get(round(left, 6), -1), sizes.get(round(right, 6), -1)))
        if -1 in ends:
            yield f"{where}: a line joins points between which there is nothing"
        elif not may_be_joined(*ends):
            yield f"{where}: a line joins {ends[0]} and {ends[1]} B, and nothing in between"


def lines_rule(wrong: Iterable[str]) -> RuleChecked:
    """The checked rule. `wrong` are the phrases of wrong_lines()."""
    return RuleChecked(
        RULE,
        f"Lines join sizes that are at most {JOINED} times apart, and nothing else.",
        tuple(dict.fromkeys(wrong)),
    )


def _segments(figure: Figure) -> Iterator[tuple[Line2D, float, float]]:
    """Each piece of a line, with its start and its end on the horizontal axis."""
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_linestyle() == "None" or line.get_transform() is not axes.transData:
                continue
            points = np.asarray(line.get_xydata(), dtype=np.float64)
            for left, right in pairwise(points):
                if np.isfinite((left, right)).all():
                    yield line, float(left[0]), float(right[0])
