"""Colours: one for each environment, the same on every plot, in light and in dark.

They are Okabe and Ito's, which people with any colour vision tell apart, darkened where they would
be too pale on paper, so that each stands out from its ground by 3 to 1 at least. Each environment
has a marker too, and a dash once the colours begin anew: nothing is said by colour alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.lines import Line2D

from vicinal.labs.study.file.model import Comparison, Study

BASE_LIGHT, BASE_DARK = "#565b62", "#b4bac2"
LIGHT = ("#0072b2", "#c85200", "#00805c", "#b04a86", "#8f6400", "#2f86b8")
DARK = ("#5cb0ea", "#ff9350", "#35c79c", "#e896c6", "#e8b64a", "#9bd6f7")
MARKERS = ("s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")


@dataclass(frozen=True)
class Role:
    """A colour of a plot by what it is for, as a stylesheet names it."""

    variable: str
    light: str
    dark: str


INK = Role("--ink", "#1a1d21", "#e8eaed")
MUTED = Role("--muted", "#5a6169", "#a5adb7")
GRID = Role("--grid", "#dfe2e6", "#363c44")
BAND = Role("--band", "#eceef0", "#2a3037")
PAPER = Role("--paper", "#ffffff", "#15181c")
ROLES = (
    INK,
    MUTED,
    GRID,
    BAND,
    PAPER,
    Role("--environment-0", BASE_LIGHT, BASE_DARK),
    *(
        Role(f"--environment-{place}", light, dark)
        for place, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True), 1)
    ),
)


@dataclass(frozen=True)
class Style:
    """How an environment looks."""

    title: str
    role: Role
    marker: str
    dash: str

    @property
    def color(self) -> str:
        """In light; a page puts the variable in its place."""
        return self.role.light


def of_comparison(
    comparison: Comparison, among: Sequence[Comparison], looks: Mapping[str, Style]
) -> Style:
    """The test's; with the base's marker where the same test stands beside several bases."""
    test, base = looks[comparison.test], looks[comparison.base]
    alone = sum(each.test == comparison.test for each in among) == 1
    title = f"{test.title} / {base.title}"
    return replace(test, title=title, marker=test.marker if alone else base.marker)


def styles(study: Study) -> dict[str, Style]:
    """By an environment's name. The base of the first comparison is grey, a circle."""
    comparisons = study.design.comparisons
    base = comparisons[0].base if comparisons else study.environments[0].name
    return styles_of({each.name: each.title for each in study.environments}, base)


def styles_of(titles: Mapping[str, str], base: str) -> dict[str, Style]:
    """By name, of what has titles. One of them is grey, a circle."""
    found: dict[str, Style] = {}
    place = 0
    for name, title in titles.items():
        if name == base:
            found[base] = Style(title, ROLES[5], "o", "-")
            continue
        turn, color = divmod(place, len(LIGHT))
        found[name] = Style(
            title,
            ROLES[6 + color],
            MARKERS[(color + turn) % len(MARKERS)],
            DASHES[turn % len(DASHES)],
        )
        place += 1
    return found


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
