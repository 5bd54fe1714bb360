"""Published figures in plots: on which axis they belong, and how they look.

Published figures are hollow stars; no measured figure is a star, and no line leads to one. A star
has the colour of its environment or comparison. A figure is drawn if it is of the same statistic
and its unit converts to the axis's: a ratio among ratios, and an absolute value among absolute
values. If the workload has sizes, a figure without a size has no place on the axis. The table of
published figures has all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from vicinal.labs.report import numbers
from vicinal.labs.report.names import unmarked
from vicinal.labs.report.palette import INK, PAPER, Entry, Style, of_comparison
from vicinal.labs.study.analysis.summary import PublishedComparison
from vicinal.labs.study.analysis.units import convert
from vicinal.labs.study.file.model import Comparison, Published, Statistic, Workload
from vicinal.labs.study.file.reading_published import RATIO

_POINTS = (5, 4, 6, 8)
"""Numbers of points of stars. No marker of an environment is a star."""
_SIZE = 9.0


@dataclass(frozen=True)
class Reference:
    """A published figure, in the unit of its plot."""

    whose: str | Comparison
    """An environment, or the two environments of a ratio."""
    size: int | None
    value: float
    published: Published
    adapted: bool
    """Whether the measurement beside it ran under other conditions."""


def of_values(
    published: Iterable[PublishedComparison], workload: Workload, statistic: Statistic, unit: str
) -> list[Reference]:
    """The references of a plot of absolute values in a unit."""
    found = []
    for each in published:
        figure = each.published
        if figure.comparison is not None or figure.environment is None:
            continue
        value = convert(figure.value, figure.unit, unit)
        same = figure.quantity is workload.quantity and _is_of(figure, workload, statistic)
        if same and value is not None and value > 0:
            found.append(Reference(figure.environment, figure.size, value, figure, each.adapted))
    return found


def of_ratios(
    published: Iterable[PublishedComparison], workload: Workload, statistic: Statistic
) -> list[Reference]:
    """The references of a plot of ratios test/base."""
    found = []
    for each in published:
        figure = each.published
        if figure.comparison is None or figure.unit != RATIO or figure.value <= 0:
            continue
        if _is_of(figure, workload, statistic):
            whose = Comparison(*figure.comparison)
            found.append(Reference(whose, figure.size, figure.value, figure, each.adapted))
    return found


@dataclass(frozen=True)
class Look:
    """How the stars of an environment, or of two environments, look."""

    title: str
    color: str
    points: int = _POINTS[0]


def looks_of(
    references: Sequence[Reference],
    comparisons: Sequence[Comparison],
    styles: Mapping[str, Style],
) -> dict[str | Comparison, Look]:
    """How the stars of each environment, or of each pair of environments, look.

    A star of a pair that the study compares has the colour of that comparison. A star of another
    pair has the colour of its test, and a number of points of its own.
    """
    found: dict[str | Comparison, Look] = {}
    for whose in dict.fromkeys(each.whose for each in references):
        if isinstance(whose, str):
            found[whose] = Look(unmarked(styles[whose].title), styles[whose].color)
            continue
        published = [each.whose for each in references if isinstance(each.whose, Comparison)]
        bases = dict.fromkeys(
            each.base for each in (*comparisons, *published) if each.test == whose.test
        )
        test, base = styles[whose.test], styles[whose.base]
        title = f"{unmarked(test.title)} / {unmarked(base.title)}"
        measured = next((each for each in comparisons if _key(each) == _key(whose)), None)
        if measured is not None:
            found[whose] = Look(title, of_comparison(measured, comparisons, styles).color)
            continue
        points = _POINTS[list(bases).index(whose.base) % len(_POINTS)]
        found[whose] = Look(title, test.color, points)
    return found


def legend(
    references: Sequence[Reference],
    looks: Mapping[str | Comparison, Look],
    shown: Iterable[str | Comparison],
) -> list[Entry]:
    """Entries of a legend for stars.

    Stars of environments and comparisons that the legend already shows (`shown`) share one entry.
    Each other kind of star has an entry of its own.
    """
    if not references:
        return []
    there = {_key(each) for each in shown}
    plain = {_key(whose) for whose, look in looks.items() if look.points == _POINTS[0]} & there
    sources = ", ".join(dict.fromkeys(each.published.source for each in references))
    entries = []
    if any(_key(each.whose) in plain for each in references):
        entries.append(_entry(Look(f"published, {sources}", INK.light)))
    for whose, look in looks.items():
        if _key(whose) not in plain:
            entries.append(_entry(replace(look, title=f"published: {look.title}")))
    return entries


def draw(axes: Axes, x: float, y: float, look: Look) -> None:
    """Draw a published figure as a hollow star."""
    axes.plot(
        [x],
        [y],
        marker=_marker(look),
        markersize=_SIZE,
        markerfacecolor=PAPER.light,
        markeredgecolor=look.color,
        markeredgewidth=1.1,
        linestyle="none",
        zorder=4,
    )


def is_of(reference: Reference, comparison: Comparison) -> bool:
    """Whether a reference is a ratio of the two environments of a comparison."""
    return _key(reference.whose) == _key(comparison)


def words(
    references: Sequence[Reference], looks: Mapping[str | Comparison, Look], unit: str
) -> str:
    """The references in words, for screen readers. Empty if there are none."""
    if not references:
        return ""
    said = []
    for whose, look in looks.items():
        of_it = sorted(
            (each for each in references if each.whose == whose), key=lambda each: each.size or 0
        )
        ends = dict.fromkeys((of_it[0], of_it[-1]))
        values = " to ".join(
            (numbers.with_unit(each.value, unit) if unit else numbers.times(each.value))
            + ("" if each.size is None else f" at {numbers.size(each.size)}")
            for each in ends
        )
        notes = _notes(of_it, whose)
        said.append(f"{look.title}{f' ({notes})' if notes else ''}: {values}")
    return f" Stars, published: {'; '.join(said)}."


def note(
    references: Sequence[Reference],
    comparisons: Sequence[Comparison],
    styles: Mapping[str, Style],
) -> str:
    """What readers should know about the stars of a section. Empty if there are none.

    If an environment stands in for another one, the note of the figure names the published one.
    """
    if not references:
        return ""
    sources = ", ".join(dict.fromkeys(each.published.source for each in references))
    said = [
        f"Hollow stars were published ({sources}), of other machines. They were not measured here."
    ]
    for whose, look in looks_of(references, comparisons, styles).items():
        notes = _notes(references, whose)
        if notes:
            said.append(f"“{look.title}”: {notes}.")
    if any(each.adapted for each in references):
        said.append(
            "The measurements here ran adapted, in fewer ranks, smaller sizes or other"
            " environments. Compare the course of the curves and not their height."
        )
    return " ".join(said)


def _notes(references: Iterable[Reference], whose: str | Comparison) -> str:
    """The notes of the figures of one look: `about`, `published of sriov`."""
    found = (each.published.note for each in references if each.whose == whose)
    return "; ".join(dict.fromkeys(text for text in found if text))


def _is_of(figure: Published, workload: Workload, statistic: Statistic) -> bool:
    """Whether a figure belongs to a plot, and has a place there: with sizes, it needs a size."""
    return (
        figure.workload == workload.name
        and figure.statistic == statistic
        and (figure.size is not None) == bool(workload.sizes)
    )


def _key(whose: str | Comparison) -> tuple[str, ...]:
    return (whose,) if isinstance(whose, str) else (whose.base, whose.test)


def _entry(look: Look) -> Entry:
    return Entry(look.title, look.color, _marker(look), "none", hollow=True)


def _marker(look: Look) -> tuple[int, int, float]:
    return (look.points, 1, 0.0)
