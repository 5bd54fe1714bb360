"""Axes: message sizes on a scale of powers of two, values and ratios on logarithmic scales."""

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from vicinal.base.sizes import show_exact_size
from vicinal.labs.report import numbers
from vicinal.labs.report.palette import BAND, INK
from vicinal.labs.statistics.estimate import Estimate

_SIZE_TICKS = 6
_MIDDLING = (1, 2, 5)
_CLOSE, _FAR = 3, 150
"""Largest / smallest value: ticks are evenly spaced below the first, and only decades above the
second."""
_RATIO_TICKS = 7
_MOST_DECADES = 12
_FRACTIONS = 0.6
"""Ratios below are shown as fractions: 1/4, 1/8, ..."""
_ROUNDED = 0.05


def position(size: int, sizes: Sequence[int]) -> float:
    """The position of a size: its binary logarithm. 0 bytes are a step before the smallest size."""
    if size > 0:
        return math.log2(size)
    return math.log2(min((each for each in sizes if each > 0), default=1)) - 1


def size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Ticks only at measured sizes, and no more than are readable."""
    step = -(-len(sizes) // _SIZE_TICKS)
    shown = list(sizes)[::step]
    axes.xaxis.set_major_locator(FixedLocator([position(size, sizes) for size in shown]))
    axes.set_xticklabels([show_exact_size(size) for size in shown], rotation=0, fontsize=7.5)
    axes.set_xlim(position(sizes[0], sizes) - 0.6, position(sizes[-1], sizes) + 0.6)
    axes.set_xlabel("Size")


def log_values(axes: Axes, values: Iterable[float], which: str = "y") -> None:
    """A logarithmic axis of values above zero. Its ticks have numbers and no powers of ten."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = _span(values)
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    reach = (high / low) ** 0.06 * 1.04
    (axes.set_ylim if which == "y" else axes.set_xlim)(low / reach, high * reach)
    if high / low < _CLOSE:
        axis.set_major_locator(FixedLocator(_round_ticks(low, high)))
    else:
        steps = _MIDDLING if high / low < _FAR else (1,)
        axis.set_major_locator(LogLocator(subs=steps, numticks=_MOST_DECADES))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())
    axis.grid(visible=True)


def ratio_axis(axes: Axes, ratios: Iterable[float], margin: float, which: str = "y") -> None:
    """An axis as of log_values(), with a line at 1 and a band of ratios that count as equal."""
    values = [*ratios, 1 / (1 + 2 * margin), 1 + 2 * margin]
    log_values(axes, values, which)
    axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = _span(values)
    axis.set_major_locator(FixedLocator(_ratio_ticks(low, high)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _ratio_tick(value)))
    band = (axes.axhspan, axes.axhline) if which == "y" else (axes.axvspan, axes.axvline)
    band[0](1 / (1 + margin), 1 + margin, color=BAND.light, linewidth=0, zorder=0.5)
    band[1](1, color=INK.light, linewidth=1, zorder=0.9)


def reach(*estimates: Estimate) -> list[list[float]]:
    """Intervals as lengths of error bars, of shape (2, estimates): below and above the value."""
    known = [
        (each.value - each.low, each.high - each.value) if each.confidence > 0 else (0.0, 0.0)
        for each in estimates
    ]
    return [[max(0.0, below) for below, _ in known], [max(0.0, above) for _, above in known]]


def _span(values: Iterable[float]) -> tuple[float, float]:
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    return (min(positive), max(positive)) if positive else (1.0, 1.0)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ticks around 1. If the ends are far apart, powers with the same step up and down."""
    if high / low < _CLOSE:
        return _round_ticks(low, high)
    for step in (2, 4, 10, 100, 1000):
        up = int(math.log(max(high, 1), step) + 0.2)
        down = int(math.log(1 / min(low, 1), step) + 0.2)
        if up + down + 1 <= _RATIO_TICKS:
            return [float(step) ** power for power in range(-down, up + 1)]
    return [1.0]


def _round_ticks(low: float, high: float) -> list[float]:
    ticks = MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in ticks if low / 1.05 <= tick <= high * 1.05]


def _ratio_tick(value: float) -> str:
    inverse = round(1 / value)
    fraction = value < _FRACTIONS and abs(inverse * value - 1) < _ROUNDED
    return f"1/{inverse}×" if fraction else f"{_tick(value)}×"


def _tick(value: float) -> str:
    return numbers.number(value) if value >= 1000 else f"{value:.3g}"
