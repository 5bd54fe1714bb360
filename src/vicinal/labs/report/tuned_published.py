"""What P3 published of interrupt moderation and other knobs, for the page on tuning.

Its figures are those of the studies that come with Vicinal, which name their sources.
"""

from collections.abc import Iterator, Sequence

from vicinal.labs.report import numbers
from vicinal.labs.report.tables import Column, Table
from vicinal.labs.study.file.model import Published, Study, Workload
from vicinal.labs.study.file.reading_published import P_VALUE, RATIO
from vicinal.labs.study.file.shipped import load_study

_MODERATION = ("p3-table3", "p3-table4", "p3-fig8")
_WINDOWS = ("p3-fig10", "p3-fig11", "p3-fig12", "p3-fig13")
_KNOBS = {
    "rx-frames": _MODERATION,
    "rx-usecs": _WINDOWS,
    "rx-usecs-low": _WINDOWS,
    "rx-usecs-high": _WINDOWS,
    "MV2_SRQ_LIMIT": ("p3-fig9",),
}
"""The studies of P3 about each knob, by its name without that of its device."""

STUDIES = frozenset(("p3-table5", *(name for names in _KNOBS.values() for name in names)))
"""Those whose page has a place for what the tuner found; Table V's figures are those of fig. 8."""

_STEPS = (
    ("native-rx88", "native-rx1", "hosts, rx-frames 88 → 1"),
    ("vm-rx88", "vm-rx1", "virtual machines, rx-frames 88 → 1"),
    ("native-rx88", "vm-rx1", "hosts, rx-frames 88 → tuned virtual machines"),
    ("vm", "vm-window", "virtual machines, rx-usecs as it was → 40 and 1000"),
)
"""Environments before and after turning a knob."""


def published_of(knobs: Sequence[str]) -> list[Table]:
    """What each study of P3 about one of these knobs has; of no knob, all of them."""
    parts = {knob.rpartition("/")[2] for knob in knobs}
    names = [name for part, names in _KNOBS.items() if part in parts or not knobs for name in names]
    studies = [load_study(name) for name in dict.fromkeys(names)]
    tables = [table for study in studies for table in _tables(study)]
    curves = [each for each in studies if not each.published]
    return [*tables, _curves(curves)] if curves else tables


def _curves(studies: Sequence[Study]) -> Table:
    """Those of which no figure is printed."""
    rows = [(each.source, each.workloads[0].title, _said(each)) for each in studies]
    columns = tuple(Column(title, number=False) for title in ("Source", "Workload", "Said of it"))
    name = f"{', '.join(each.source for each in studies)}: curves, without figures"
    return Table(name, columns, tuple(rows), name=name)


def _tables(study: Study) -> Iterator[Table]:
    """One for each turn of a knob, and one of what else is said."""
    for before, after, step in _STEPS:
        rows = [
            row for workload in study.workloads for row in _rows(study, workload, before, after)
        ]
        if rows:
            yield _table(study, step, rows)
    rows = [_alone(study, each) for each in study.published if _is_alone(each)]
    if rows:
        yield _table(study, "", rows)


def _table(study: Study, step: str, rows: Sequence[tuple[str, ...]]) -> Table:
    """Without columns in which nothing is."""
    titles = ("Workload", "Size", "Before", "After", "After/before", "p", "Said of it")
    words = (titles[0], titles[-1])
    full = [
        place for place in range(len(titles)) if any(row[place] not in ("–", "") for row in rows)
    ]
    sources = dict.fromkeys([study.source, *(each.source for each in study.published)])
    name = f"{', '.join(sources)}: {study.title}{f': {step}' if step else ''}"
    return Table(
        name,
        tuple(Column(titles[place], number=titles[place] not in words) for place in full),
        tuple(tuple(row[place] for place in full) for row in rows),
        name=name,
    )


def _rows(study: Study, workload: Workload, before: str, after: str) -> Iterator[tuple[str, ...]]:
    figures = [each for each in study.published if each.workload == workload.name]
    for size in dict.fromkeys(each.size for each in figures):
        of_size = [each for each in figures if each.size == size]
        base, test = (_value(of_size, side) for side in (before, after))
        ratio, p_value = (_compared(of_size, (before, after), unit) for unit in (RATIO, P_VALUE))
        same_place = before.partition("-")[0] == after.partition("-")[0]
        if (base and test and same_place) or ratio or p_value:
            yield (
                workload.title,
                numbers.size(size),
                _printed(base),
                _printed(test),
                _ratio(base, test, ratio),
                _printed(p_value),
                _said(study) if ratio else "",
            )


def _alone(study: Study, figure: Published) -> tuple[str, ...]:
    title = study.workload(figure.workload).title
    return (title, numbers.size(figure.size), "–", _printed(figure), "–", "–", figure.note)


def _is_alone(figure: Published) -> bool:
    """Whether it is of an environment that no step has."""
    steps = {side for step in _STEPS for side in step[:2]}
    return figure.environment is not None and figure.environment not in steps


def _said(study: Study) -> str:
    return next(iter(study.notes), "")


def _value(figures: Sequence[Published], environment: str) -> Published | None:
    return next((each for each in figures if each.environment == environment), None)


def _compared(
    figures: Sequence[Published], comparison: tuple[str, str], unit: str
) -> Published | None:
    found = (each for each in figures if each.comparison == comparison and each.unit == unit)
    return next(found, None)


def _printed(figure: Published | None) -> str:
    """With all digits that the paper has."""
    if figure is None:
        return "–"
    sign = next((mark for word, mark in _SIGNS.items() if figure.note.startswith(word)), "")
    unit = "" if figure.unit in (RATIO, P_VALUE) else f"\N{NO-BREAK SPACE}{figure.unit}"
    return f"{sign}{figure.value:g}{unit}"


_SIGNS = {
    "less than": "<\N{NO-BREAK SPACE}",
    "more than": ">\N{NO-BREAK SPACE}",
    "about": "≈\N{NO-BREAK SPACE}",
}


def _ratio(base: Published | None, test: Published | None, ratio: Published | None) -> str:
    if ratio is None and base and test:
        return numbers.number(test.value / base.value)
    return _printed(ratio)
