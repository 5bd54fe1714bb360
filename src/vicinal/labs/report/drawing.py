"""The frame of all plots, and their form as PNG, as SVG and as a part of a page."""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from vicinal.labs.report.palette import GRID, INK, MUTED, PAPER, ROLES, Entry, handle
from vicinal.labs.report.references import Reference
from vicinal.labs.study.result.whole import write_whole

WIDTH = 310
"""Points. At 360 pixels, the width of a phone's page, text is drawn larger than this by a fifth."""
_POINTS = 72
_PIXELS_AN_INCH = 200
_PNG_COMPRESSION = 3
"""A higher level takes three times as long and saves a tenth of the size."""
_LETTER = 4.9
_TITLE_SIZE = 10.5
"""Points: how wide a letter of a label is at most, on average."""
_TITLE_HEIGHT = 22
_LEGEND_LINE = 14
_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_COLORS = {role.light: role for role in ROLES}
_HEX = re.compile(r"#[0-9a-f]{6}\b")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FONT = re.compile(r"font: ([^;]*?)(\d+(?:\.\d+)?)px [^;]*")

# Text stays text in SVG, and the same summary gives the same file.
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vicinal",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK.light,
    "axes.edgecolor": MUTED.light,
    "axes.labelcolor": INK.light,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.labelcolor": INK.light,
    "ytick.labelcolor": INK.light,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.labelsize": 9,
    "grid.color": GRID.light,
    "grid.linewidth": 0.7,
    "text.parse_math": False,  # a title may have a dollar in it
}


@dataclass(frozen=True)
class Plot:
    """A plot. `name` is the name of its files without the suffix."""

    name: str
    title: str
    alternative: str
    """What the plot shows, in words, for screen readers."""
    figure: Figure
    sizes: tuple[int, ...] = ()
    """The sizes of its horizontal axis. Empty if the axis has no sizes."""
    continuous: bool = False
    """Whether values between its points are known, as in a distribution."""
    stars: tuple[Reference, ...] = ()
    """The published figures in the plot."""


def frame(
    title: str,
    legend: Sequence[Entry],
    *,
    height: float = 180,
    width: float = WIDTH,
    left: float = 54,
    right: float = 14,
    bottom: float = 40,
) -> tuple[Figure, Axes]:
    """A figure with a title, a legend, and axes of `height` points, from top to bottom."""
    heading = _heading(title, width - 8)
    columns = 1 if any(len(each.label) > 21 for each in legend) else 2
    labels = [textwrap.fill(each.label, int(width / 5.5)) for each in legend]
    lines = -(-len(legend) // columns) + sum(label.count("\n") for label in labels)
    above = _TITLE_HEIGHT + 13 * (len(heading) - 1) + _LEGEND_LINE * lines + 8
    total = above + height + bottom
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width / _POINTS, total / _POINTS), facecolor=PAPER.light)
        axes = figure.add_axes(
            (left / width, bottom / total, 1 - (left + right) / width, height / total),
            facecolor="none",
        )
        figure.text(
            4 / width,
            1 - 4 / total,
            "\n".join(heading),
            fontsize=_TITLE_SIZE,
            fontweight="bold",
            va="top",
            linespacing=1.2,
        )
        if legend:
            top = _TITLE_HEIGHT + 13 * (len(heading) - 1)
            figure.legend(
                handles=[handle(*each) for each in zip(legend, labels, strict=True)],
                loc="upper left",
                bbox_to_anchor=(0.0, 1 - top / total),
                ncols=columns,
                frameon=False,
                fontsize=8.5,
                borderpad=0,
                borderaxespad=0.4,
                labelspacing=0.35,
                columnspacing=1.5,
                handlelength=2.2,
            )
    return figure, axes


def _heading(title: str, width: float) -> list[str]:
    """A title in lines of at most `width` points; a longer word has a line of its own."""
    font = FontProperties(family="DejaVu Sans", weight="bold", size=_TITLE_SIZE)
    lines: list[str] = []
    for word in title.split():
        longer = f"{lines[-1]} {word}" if lines else word
        drawn, _, _ = text_to_path.get_text_width_height_descent(longer, font, ismath=False)
        if lines and drawn <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def broken(words: str, width: float = WIDTH) -> str:
    """A label of 8.5 points in lines that fit into a plot."""
    return textwrap.fill(words, int((width - 30) / _LETTER))


GROUND = {"facecolor": PAPER.light, "edgecolor": "none", "pad": 0.6}
"""The ground of a text among lines."""


def write_plot(plot: Plot, folder: Path) -> bytes:
    """Write a plot as PNG and SVG, on white. Returns the SVG."""
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        plot.figure.savefig(
            content,
            format="png",
            dpi=_PIXELS_AN_INCH,
            pil_kwargs={"compress_level": _PNG_COMPRESSION},
        )
    write_whole(folder / f"{plot.name}.png", content.getbuffer())
    svg = _svg(plot.figure)
    write_whole(folder / f"{plot.name}.svg", svg)
    return svg


def inline(plot: Plot, svg: bytes) -> str:
    """The SVG as a part of a page, with the page's colours, and with ids that are unique there."""
    for prefix, space in (("", _SVG), ("xlink", _LINK)):
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(svg)
    for child in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(child)
    for size in ("width", "height"):
        root.attrib.pop(size)
    for element in root.iter():
        if _HEX.fullmatch(element.get("fill", "")):  # hatches have it outside their style
            element.set("style", f"fill: {element.attrib.pop('fill')}")
        for name, value in element.attrib.items():
            element.set(name, _own(name, value, plot.name))
    root.set("role", "img")
    root.set("aria-label", plot.alternative)
    return ElementTree.tostring(root, encoding="unicode")


def _svg(figure: Figure) -> bytes:
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": "Vicinal"})
    return content.getvalue()


def _own(name: str, value: str, plot: str) -> str:
    """The value of an attribute, with the page's colours, and with ids that no other plot has."""
    if name == "id":
        return f"{plot}-{value}"
    if name == f"{{{_LINK}}}href":
        return value.replace("#", f"#{plot}-")
    if name == "style":
        value = _FONT.sub(r"font-size: \2px; font-weight: \1", value)
        value = value.replace("font-weight: ;", "").replace(
            "font-weight: bold ", "font-weight: 600"
        )
        return _HEX.sub(_variable, value).replace("url(#", f"url(#{plot}-")
    value = value.replace("url(#", f"url(#{plot}-")
    return _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", value)


def _variable(found: re.Match[str]) -> str:
    role = _COLORS.get(found[0])
    return f"var({role.variable})" if role else found[0]
