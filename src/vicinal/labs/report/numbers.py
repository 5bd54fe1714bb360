"""Figures for people: three digits, thin spaces between thousands, units, and intervals."""

from vicinal.base.sizes import show_exact_size
from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate

_NEARLY = 0.005
"""Intervals of order statistics do not have 95 % exactly."""
_SMALLEST_P = 0.001
_TIMES = 2
_PART = 0.05
_SAME = 0.0005
"""Smaller changes would be shown as 0.0 %."""


def number(value: float) -> str:
    """Three significant digits, and all digits before the point: 0.220, 12.3, 1 234."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}").replace("-", "−")
    if abs(value) < 0.001:
        return f"{value:.2e}"
    text = f"{value:#.3g}"
    return text.rstrip(".").replace("-", "−")


def with_unit(value: float, unit: str) -> str:
    """The figure and its unit, joined by a space that breaks no line."""
    return f"{number(value)}\N{NO-BREAK SPACE}{unit}" if unit else number(value)


def interval(estimate: Estimate) -> str:
    """`[1.15, 1.25]`, with its confidence if that is below 95 %; or `(no interval)`."""
    if estimate.confidence <= 0:
        return "(no interval)"
    text = f"[{number(estimate.low)}, {number(estimate.high)}]"
    if estimate.confidence < CONFIDENCE - _NEARLY:
        text += f" ({100 * estimate.confidence:.0f}\N{NO-BREAK SPACE}%)"
    return text


def estimated(estimate: Estimate, unit: str = "") -> str:
    """The figure with its unit and interval."""
    return f"{with_unit(estimate.value, unit)} {interval(estimate)}"


def percent(part: float, *, signed: bool = False) -> str:
    """A fraction of one in percent, with one decimal below 20 %."""
    value = 100 * part
    if signed and round(value, 1) == 0:
        return "0\N{NO-BREAK SPACE}%"
    digits = 0 if abs(value) >= 20 else 1
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return f"{text.replace('-', '−')}\N{NO-BREAK SPACE}%"


def change(before: float, after: float) -> str:
    """The quotient of two figures in words: `82 % less`, `3.10 times as much`, `1/582 of it`.

    The ratio with an interval comes from the blocks, and may differ a little.
    """
    if before <= 0:
        return "–"
    ratio = after / before
    if ratio >= _TIMES:
        return f"{number(ratio)} times as much"
    if 0 < ratio < _PART:
        return f"1/{number(1 / ratio)} of it"  # percentages would hardly differ
    if abs(ratio - 1) < _SAME:
        return "the same"
    return f"{percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"


def times(ratio: float) -> str:
    """A ratio as `0.18×`."""
    return f"{number(ratio)}×"


def p_value(value: float | None) -> str:
    """A p-value as in papers, or a dash if no test was made."""
    if value is None:
        return "–"
    return "<\N{NARROW NO-BREAK SPACE}0.001" if value < _SMALLEST_P else f"{value:.3f}"


def size(value: int | None) -> str:
    """`4 KiB`, or a dash if the workload has no sizes."""
    return "–" if value is None else show_exact_size(value).replace(" ", "\N{NO-BREAK SPACE}")
