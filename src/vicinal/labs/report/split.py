"""Plots of the parts of an application's time: communication, computation and others."""

from collections.abc import Mapping, Sequence

import matplotlib

from vicinal.labs.report import numbers
from vicinal.labs.report.drawing import SETTINGS, Plot, broken, frame
from vicinal.labs.report.palette import PAPER, ROLES, Entry, Style
from vicinal.labs.study.analysis.summary import Cell
from vicinal.labs.study.file.model import Workload

_LANE, _BAR = 40, 17
_LINE = 11
"""Points: what a title needs for each line after its first."""
_FIRST_ROLE = 6
_HATCHES = ("", "///", "...", "xx", "\\\\\\")


def split(
    name: str, workload: Workload, cells: Sequence[Cell], styles: Mapping[str, Style]
) -> Plot | None:
    """A bar for each environment, in seconds, made of its parts. None if no cell has parts."""
    chosen = [cell for cell in cells if cell.parts and cell.environment in styles]
    if not chosen:
        return None
    kinds = list(dict.fromkeys(part for cell in chosen for part in cell.parts))
    title = f"{workload.title}: where the time goes"
    legend = [
        Entry(kind, ROLES[_FIRST_ROLE + index % 6].light, "s", "none")
        for index, kind in enumerate(kinds)
    ]
    titles = [broken(f"{styles[cell.environment].title}: 1 234 s") for cell in chosen]
    height = _LANE + _LINE * max(each.count("\n") for each in titles)
    figure, axes = frame(title, legend, height=height * len(chosen) + 8, left=14)
    with matplotlib.rc_context(SETTINGS):
        for lane, cell in enumerate(chosen):
            before = 0.0
            for index, kind in enumerate(kinds):
                if kind not in cell.parts:
                    continue
                value = cell.parts[kind].value
                axes.barh(
                    lane,
                    value,
                    left=before,
                    height=_BAR / height,
                    color=ROLES[_FIRST_ROLE + index % 6].light,
                    hatch=_HATCHES[index % len(_HATCHES)],
                    edgecolor=PAPER.light,
                    linewidth=0.8,
                )
                before += value
            axes.annotate(
                broken(f"{styles[cell.environment].title}: {numbers.with_unit(before, 's')}"),
                (0, lane),
                xytext=(2, 10),
                textcoords="offset points",
                fontsize=8.5,
                va="bottom",
                linespacing=1.1,
            )
        axes.set_ylim(len(chosen) - 0.6, -0.85 if height == _LANE else -0.95)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlim(left=0)
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("s, lower is better")
    words = "; ".join(
        f"{styles[cell.environment].title}: "
        + ", ".join(
            f"{kind} {numbers.with_unit(cell.parts[kind].value, 's')}" for kind in cell.parts
        )
        for cell in chosen
    )
    return Plot(name, title, f"{title}. {words}.", figure)
