"""The lines of a plot's legend."""

from dataclasses import dataclass

from matplotlib.lines import Line2D

from vicinal.labs.report.palette import PAPER, Style


@dataclass(frozen=True)
class Entry:
    """A line of a legend."""

    label: str
    color: str
    marker: str | tuple[int, int, float]
    dash: str = "-"
    hollow: bool = False


def entry(style: Style, *, dash: str | None = None) -> Entry:
    """An environment's, or a comparison's, line of a legend."""
    return Entry(style.title, style.color, style.marker, dash or style.dash)


def handle(line: Entry, label: str) -> Line2D:
    """What stands for a line in its legend."""
    return Line2D(
        [],
        [],
        color=line.color,
        marker=line.marker,  # type: ignore[arg-type]
        linestyle=line.dash,  # type: ignore[arg-type]
        markersize=8 if line.hollow else 5,
        markerfacecolor=PAPER.light if line.hollow else line.color,
        label=label,
    )
