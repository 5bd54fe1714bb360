"""Colours and markers: one for each environment and for each comparison, in light and in dark.

The first two colours are Okabe and Ito's, darkened on white and lightened on black. The others were
found by a search for the largest smallest difference (CIE 1976) between any two colours, as people
with normal vision and with the three kinds of colour blindness see them. Each colour has a contrast
of at least 3 to 1 with its ground. Each environment also has a marker, and a dash once the colours
repeat, so that colour never carries a meaning by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.lines import Line2D

from vicinal.labs.study.file.model import Comparison, Study

BASE_LIGHT, BASE_DARK = "#565b62", "#b4bac2"
LIGHT = ("#0072b2", "#c85200", "#1c9c5c", "#682112", "#2525d0", "#681268")
DARK = ("#5cb0ea", "#ff9350", "#82eda6", "#d22d48", "#7474e7", "#bf4095")
MARKERS = ("s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")


@dataclass(frozen=True)
class Role:
    """A colour of plots by its purpose, with the name of its variable in the stylesheet."""

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
        Role(f"--environment-{index}", light, dark)
        for index, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True), 1)
    ),
)


_BASE_COLOR, _FIRST_COLOR = 5, 6
"""Indices in ROLES."""
_BASE_MARKER = "o"


@dataclass(frozen=True)
class Style:
    """How an environment or a comparison looks."""

    title: str
    role: Role
    marker: str
    dash: str

    @property
    def color(self) -> str:
        """The colour on white. A page replaces it by the variable."""
        return self.role.light


def of_comparison(
    comparison: Comparison, among: Sequence[Comparison], looks: Mapping[str, Style]
) -> Style:
    """How a comparison of a study looks: see `comparison_styles`."""
    return comparison_styles(among, looks)[comparison]


def comparison_styles(
    comparisons: Sequence[Comparison], looks: Mapping[str, Style]
) -> dict[Comparison, Style]:
    """A colour and a marker for each comparison of a study.

    The first comparison of an environment with its base looks like the environment. Later
    comparisons of the same environment get a colour and a marker that no other comparison has, and
    if possible no environment. Up to seven comparisons share neither colours nor markers.
    """
    kept = {each.test: looks[each.test] for each in comparisons}
    found: dict[Comparison, Style] = {}
    for each in comparisons:
        own = kept.pop(each.test, None)
        style = own or _unused([*found.values(), *kept.values()], looks)
        title = f"{looks[each.test].title} / {looks[each.base].title}"
        found[each] = replace(style, title=title)
    return found


def _unused(taken: Sequence[Style], looks: Mapping[str, Style]) -> Style:
    """A look whose colour and marker are not taken; if all are, one whose combination is not."""
    plain = [
        Style("", ROLES[_FIRST_COLOR + index], marker, "-")
        for index, marker in enumerate(MARKERS[: len(LIGHT)])
    ]
    plain.append(Style("", ROLES[_BASE_COLOR], _BASE_MARKER, "-"))
    mixed = [replace(each, marker=marker) for marker in MARKERS for each in plain]
    roles = {each.role for each in taken}
    markers = {each.marker for each in taken}
    of_environments = {each.role for each in looks.values()}
    apart = [each for each in plain if each.role not in roles and each.marker not in markers]
    free = [each for each in apart if each.role not in of_environments] or apart
    pairs = {(each.role, each.marker) for each in taken}
    rest = [each for each in mixed if (each.role, each.marker) not in pairs]
    return (free or rest or mixed)[0]


def styles(study: Study) -> dict[str, Style]:
    """How each environment looks, by name. The base of the first comparison is a grey circle."""
    comparisons = study.design.comparisons
    base = comparisons[0].base if comparisons else study.environments[0].name
    return styles_of({each.name: each.title for each in study.environments}, base)


def styles_of(titles: Mapping[str, str], base: str) -> dict[str, Style]:
    """How each of some named things looks. `base` names the one that is a grey circle."""
    found: dict[str, Style] = {}
    index = 0
    for name, title in titles.items():
        if name == base:
            found[base] = Style(title, ROLES[_BASE_COLOR], _BASE_MARKER, "-")
            continue
        turn, color = divmod(index, len(LIGHT))
        found[name] = Style(
            title,
            ROLES[_FIRST_COLOR + color],
            MARKERS[(color + turn) % len(MARKERS)],
            DASHES[turn % len(DASHES)],
        )
        index += 1
    return found


GLYPHS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}
"""Markers as characters, for text beside plots."""


@dataclass(frozen=True)
class Entry:
    """A line of a legend."""

    label: str
    color: str
    marker: str | tuple[int, int, float]
    dash: str = "-"
    hollow: bool = False


def entry(style: Style, *, dash: str | None = None) -> Entry:
    """The line of an environment or of a comparison in a legend."""
    return Entry(style.title, style.color, style.marker, dash or style.dash)


def handle(line: Entry, label: str) -> Line2D:
    """The sample of a line in a legend."""
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
