"""The page's section on tuning: results of searches beside what P3 published of the same knobs.

vicinal/labs/tune/outputs/searched.py reads the results of searches. The published figures, of
interrupt moderation and other knobs, come from Vicinal's shipped studies, which name their sources.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vicinal.labs.report import numbers
from vicinal.labs.report.tables import VERDICT, Column, Table
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import Verdict
from vicinal.labs.study.file.model import Published, Study, Workload
from vicinal.labs.study.file.reading_published import P_VALUE, RATIO
from vicinal.labs.study.file.shipped import load_study

if TYPE_CHECKING:
    from vicinal.labs.report.content import Drawn

Value = int | str

_MODERATION = ("p3-table3", "p3-table4", "p3-fig8")
_WINDOWS = ("p3-fig10", "p3-fig11", "p3-fig12", "p3-fig13")
_KNOBS = {
    "rx-frames": _MODERATION,
    "rx-usecs": _WINDOWS,
    "rx-usecs-low": _WINDOWS,
    "rx-usecs-high": _WINDOWS,
    "MV2_SRQ_LIMIT": ("p3-fig9",),
}
"""The studies of P3 about each knob, by the knob's name without its device."""

STUDIES = frozenset(("p3-table5", *(name for names in _KNOBS.values() for name in names)))
"""Studies whose page has the section on tuning. Table V has the figures of figure 8."""

_STEPS = (
    ("native-rx88", "native-rx1", "hosts, rx-frames 88 → 1"),
    ("vm-rx88", "vm-rx1", "virtual machines, rx-frames 88 → 1"),
    ("native-rx88", "vm-rx1", "hosts, rx-frames 88 → tuned virtual machines"),
    ("vm", "vm-window", "virtual machines, rx-usecs as it was → 40 and 1000"),
)
"""Environments before and after a change of a knob, and its name on the page."""


@dataclass(frozen=True)
class Gain:
    """The effect of a setting on one objective, beside the previous setting."""

    objective: str
    unit: str
    before: Estimate
    after: Estimate
    ratio: Estimate
    """After / before, of blocks."""
    p_value: float
    """The corrected p-value."""
    verdict: str
    blocks: int
    setting: Mapping[str, Value]
    lower_is_better: bool = True


@dataclass(frozen=True)
class Tuned:
    """A workload of a search: the previous setting, the found setting, and their interrupts."""

    phase: str
    workload: str
    outcome: str
    changed: Mapping[str, tuple[Value, Value]]
    """Knobs that the found setting changes, with the values before and after."""
    gains: tuple[Gain, ...]
    interrupts_before: Estimate | None
    """Interrupts per second of all devices. None if they were not counted."""
    interrupts_after: Estimate | None
    mechanism: bool | None
    """Whether a change of interrupts was shown too. None if there is no better setting."""
    why: str
    vectors: Mapping[str, float] = field(default_factory=dict)
    """Interrupts that changed: their number for the same work, after / before."""


@dataclass(frozen=True)
class Searched:
    """A search of the tuner."""

    name: str
    title: str
    ended: str
    host: str
    """Its processor, and whether it is a virtual machine."""
    emulated: bool
    """Whether the processors of its nodes were emulated."""
    trials: int
    knobs: tuple[str, ...]
    phases: tuple[Tuned, ...]


@dataclass(frozen=True)
class TuningShown:
    """The page's section on tuning."""

    searches: tuple["SearchShown", ...]
    published: tuple[Table, ...]


@dataclass(frozen=True)
class SearchShown:
    """A search in the form of the page."""

    name: str
    title: str
    ended: str
    sentences: tuple[str, ...]
    plot: "Drawn | None"
    """None if nothing was confirmed."""
    gains: Table
    interrupts: Table


def tuning(
    study: str, searches: Sequence[Searched], plots: Sequence["Drawn | None"]
) -> TuningShown | None:
    """The section on tuning of a study's page, or None.

    Studies of P3 about interrupts have the section, and other studies if searches are given.
    `plots` has a plot or None for each search.
    """
    if not searches and study not in STUDIES:
        return None
    knobs = [knob for each in searches for knob in each.knobs]
    return TuningShown(tuple(map(_shown, searches, plots)), tuple(published_of(knobs)))


def _shown(searched: Searched, plot: "Drawn | None") -> SearchShown:
    return SearchShown(
        searched.name,
        searched.title or searched.name,
        searched.ended,
        (
            f"{searched.trials} trials, of {', '.join(searched.knobs)}"
            + (f", on {searched.host}" if searched.host else ""),
            *(_EMULATED * searched.emulated),
            *(_sentence(each) for each in searched.phases),
        ),
        plot,
        _gains(searched),
        _interrupts(searched),
    )


_EMULATED = (
    "its virtual machines were emulated: their times say nothing about virtual machines on real"
    " hardware",
)


def tuned_rows(searches: Sequence[Searched]) -> Iterator[tuple[object, ...]]:
    """Rows for CSV, with the columns TUNED_HEADINGS."""
    for search in searches:
        for phase in search.phases:
            before, after = (
                each.value if each else None
                for each in (phase.interrupts_before, phase.interrupts_after)
            )
            for gain in phase.gains:
                yield (
                    *(search.name, phase.phase, phase.outcome),
                    _words(gain.setting),
                    *(gain.objective, gain.unit),
                    *(gain.before.value, gain.before.low, gain.before.high),
                    *(gain.after.value, gain.after.low, gain.after.high),
                    *(gain.ratio.value, gain.ratio.low, gain.ratio.high, gain.ratio.confidence),
                    *(gain.p_value, gain.verdict, gain.blocks, before, after, phase.mechanism),
                )


TUNED_HEADINGS = (
    *("search", "phase", "outcome", "setting", "objective", "unit"),
    *(f"{side}{end}" for side in ("before", "after") for end in ("", "_low", "_high")),
    *("ratio", "ratio_low", "ratio_high", "ratio_confidence", "p_corrected", "verdict", "blocks"),
    *("interrupts_per_s_before", "interrupts_per_s_after", "mechanism_established"),
)


def _sentence(tuned: Tuned) -> str:
    changes = ", ".join(
        f"{knob} {before} → {after}" for knob, (before, after) in tuned.changed.items()
    )
    if changes:
        return f"{tuned.workload}: {tuned.outcome}: {changes}"
    tried = dict.fromkeys(_words(gain.setting) for gain in tuned.gains)
    return f"{tuned.workload}: {tuned.outcome}" + (
        f"; the best that were tried: {'; '.join(tried)}" if tried else ""
    )


def _words(setting: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def gains_of(searched: Searched) -> Iterator[tuple[Tuned, str, Gain]]:
    """Each figure of each workload, with its name.

    If people choose one of several settings, the name contains the setting.
    """
    for tuned in searched.phases:
        several = len({_words(gain.setting) for gain in tuned.gains}) > 1
        for gain in tuned.gains:
            yield (
                tuned,
                f"{gain.objective}, {_words(gain.setting)}" if several else gain.objective,
                gain,
            )


def _gains(searched: Searched) -> Table:
    rows, verdicts = [], []
    for tuned, figure, gain in gains_of(searched):
        rows.append(
            (
                tuned.workload,
                figure,
                numbers.estimated(gain.before, gain.unit),
                numbers.estimated(gain.after, gain.unit),
                numbers.estimated(gain.ratio),
                gain.verdict,
                numbers.p_value(gain.p_value),
                str(gain.blocks),
            )
        )
        verdicts.append(_VERDICTS.get(gain.verdict, Verdict.OPEN))
    columns = (
        Column("Workload", number=False),
        Column("Figure", number=False),
        Column("Default"),
        Column("Tuned"),
        Column("Ratio of blocks, tuned/default"),
        Column(VERDICT, number=False),
        Column("p, corrected"),
        Column("Blocks"),
    )
    caption = (
        f"{searched.title or searched.name}: the setting that was there and the one that was found,"
        " medians of fresh trials with their intervals"
    )
    return Table(caption, columns, tuple(rows), tuple(verdicts), "Default and tuned")


_VERDICTS = {"better": Verdict.BETTER, "worse": Verdict.WORSE}


def _interrupts(searched: Searched) -> Table:
    rows = [
        (
            tuned.workload,
            _rate(tuned.interrupts_before),
            _rate(tuned.interrupts_after) if tuned.changed else tuned.outcome,
            _mechanism(tuned),
        )
        for tuned in searched.phases
    ]
    columns = (
        Column("Workload", number=False),
        Column("Default, a second"),
        Column("Tuned, a second"),
        Column("Mechanism", number=False),
    )
    caption = (
        f"{searched.title or searched.name}: interrupts of all devices, medians of the same trials"
    )
    return Table(caption, columns, tuple(rows), name="Interrupts")


def _rate(rate: Estimate | None) -> str:
    return "not counted" if rate is None else numbers.estimated(rate)


def _mechanism(tuned: Tuned) -> str:
    if tuned.mechanism is None:
        return "–"
    if not tuned.mechanism:
        return f"mechanism not established: {tuned.why}"
    changes = ", ".join(f"{name} {numbers.times(each)}" for name, each in tuned.vectors.items())
    return f"{tuned.why}: {changes} for the same work"


def published_of(knobs: Sequence[str]) -> list[Table]:
    """Tables of the studies of P3 about these knobs. Without knobs, of all its studies."""
    parts = {knob.rpartition("/")[2] for knob in knobs}
    names = [name for part, names in _KNOBS.items() if part in parts or not knobs for name in names]
    studies = [load_study(name) for name in dict.fromkeys(names)]
    tables = [table for study in studies for table in _tables(study)]
    curves = [each for each in studies if not each.published]
    return [*tables, _curves(curves)] if curves else tables


def _curves(studies: Sequence[Study]) -> Table:
    """A table of studies whose papers show curves without figures."""
    rows = [(each.source, each.workloads[0].title, _said(each)) for each in studies]
    columns = tuple(Column(title, number=False) for title in ("Source", "Workload", "Said of it"))
    name = f"{', '.join(each.source for each in studies)}: curves, without figures"
    return Table(name, columns, tuple(rows), name=name)


def _tables(study: Study) -> Iterator[Table]:
    """A table for each change of a knob, and one of the other figures."""
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
    """A table without its empty columns."""
    titles = ("Workload", "Size", "Before", "After", "After/before", "p", "Said of it")
    words = (titles[0], titles[-1])
    full = [
        index for index in range(len(titles)) if any(row[index] not in ("–", "") for row in rows)
    ]
    sources = dict.fromkeys([study.source, *(each.source for each in study.published)])
    name = f"{', '.join(sources)}: {study.title}{f': {step}' if step else ''}"
    return Table(
        name,
        tuple(Column(titles[index], number=titles[index] not in words) for index in full),
        tuple(tuple(row[index] for index in full) for row in rows),
        name=name,
    )


def _rows(study: Study, workload: Workload, before: str, after: str) -> Iterator[tuple[str, ...]]:
    figures = [each for each in study.published if each.workload == workload.name]
    for size in dict.fromkeys(each.size for each in figures):
        of_size = [each for each in figures if each.size == size]
        base, test = (_value(of_size, side) for side in (before, after))
        ratio, p_value = (_compared(of_size, (before, after), unit) for unit in (RATIO, P_VALUE))
        same_prefix = before.partition("-")[0] == after.partition("-")[0]
        if (base and test and same_prefix) or ratio or p_value:
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
    """Whether a figure is of an environment that is in no step."""
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
    """A published figure with all digits of the paper."""
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
