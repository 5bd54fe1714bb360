"""Plots of distributions that show rare samples as large as common ones.

The fraction of samples up to a value is on a logit axis: 99 % is as far from 99.9 % as 90 % is from
99 %, at both ends.
"""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from vicinal.base.sizes import show_exact_size
from vicinal.labs.report import numbers
from vicinal.labs.report.axes import log_values
from vicinal.labs.report.drawing import SETTINGS, Plot, frame
from vicinal.labs.report.palette import Style, entry
from vicinal.labs.study.analysis.summary import Cell
from vicinal.labs.study.file.model import Workload

SHARES = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_LEAST = 20
"""The smallest number of quantiles that makes a curve."""


def tail(
    name: str,
    workload: Workload,
    size: int | None,
    cells: Sequence[Cell],
    styles: Mapping[str, Style],
) -> Plot | None:
    """A curve of all samples of each environment. None if no environment has enough samples."""
    chosen = [
        cell
        for cell in cells
        if cell.size == size and len(cell.tail) >= _LEAST and cell.environment in styles
    ]
    if not chosen:
        return None
    at = "" if size is None else f" at {show_exact_size(size)}"
    title = f"{workload.title}{at}: every sample"
    figure, axes = frame(title, [entry(styles[cell.environment]) for cell in chosen], left=66)
    shown: list[float] = []
    highest = max(_inside(cell)[-1][0] for cell in chosen)
    with matplotlib.rc_context(SETTINGS):
        for cell in chosen:
            style = styles[cell.environment]
            points = _inside(cell)
            shown += [value for _, value in points]
            axes.plot(
                [value for _, value in points],
                [share for share, _ in points],
                color=style.color,
                linestyle=style.dash,
                linewidth=1.5,
                marker=style.marker,
                markersize=4.5,
                markevery=max(1, len(points) // 6),
            )
        axes.set_yscale("logit")
        ticks = [share for share in SHARES if share <= highest]
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g} %"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=True, axis="y")
        log_values(axes, shown, "x")
        axes.set_ylabel("samples up to this")
        axes.set_xlabel(f"{workload.quantity}, {chosen[0].unit}")
    words = "; ".join(f"{styles[cell.environment].title}: {_words(cell)}" for cell in chosen)
    alternative = f"{title}, their distribution on a logit axis. {words}."
    return Plot(name, title, alternative, figure, continuous=True)


def _inside(cell: Cell) -> list[tuple[float, float]]:
    """Quantiles without 0 and 1, which have no place on the axis, and with values above zero."""
    floor = 0.004
    points = [(share, value) for share, value in cell.tail if floor <= share < 1 and value > 0]
    return points or [(0.5, max(cell.tail[0][1], 1e-9))]


def _words(cell: Cell) -> str:
    if cell.pooled is None:
        return f"{len(cell.tail)} quantiles"
    kinds = ("P50", "P99", "P99.9")
    return ", ".join(
        f"{kind} {numbers.with_unit(cell.pooled.percentiles[kind].value, cell.unit)}"
        for kind in kinds
        if kind in cell.pooled.percentiles
    )
