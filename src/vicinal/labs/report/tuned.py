"""What the tuner found, beside what P3 published of the same knobs: tables of the page.

Where results come from is said by whoever reads them: vicinal/labs/tune/outputs/searched.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vicinal.labs.report import numbers
from vicinal.labs.report.tables import VERDICT, Column, Table
from vicinal.labs.report.tuned_published import STUDIES, published_of
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import Verdict

if TYPE_CHECKING:
    from vicinal.labs.report.content import Drawn

Value = int | str


@dataclass(frozen=True)
class Gain:
    """A setting beside the present one, by one objective."""

    objective: str
    unit: str
    before: Estimate
    after: Estimate
    ratio: Estimate
    """After / before, of blocks."""
    p_value: float
    """Corrected."""
    verdict: str
    blocks: int
    setting: Mapping[str, Value]
    lower_is_better: bool = True


@dataclass(frozen=True)
class Tuned:
    """A workload of a search: what was there, what was found, and what interrupts did."""

    phase: str
    workload: str
    outcome: str
    changed: Mapping[str, tuple[Value, Value]]
    """Knobs that the found setting changes: before, after."""
    gains: tuple[Gain, ...]
    interrupts_before: Estimate | None
    """A second, of all devices; None where they were not counted."""
    interrupts_after: Estimate | None
    mechanism: bool | None
    """Whether interrupts are shown to have changed too; None where there is no better setting."""
    why: str
    vectors: Mapping[str, float] = field(default_factory=dict)
    """Interrupts that changed: how many for the same work, after / before."""


@dataclass(frozen=True)
class Searched:
    """A search of the tuner's."""

    name: str
    title: str
    ended: str
    machine: str
    """Its processor, and whether it is a virtual machine."""
    emulated: bool
    """Whether the processors of its nodes were."""
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
    """A search, as the page has it."""

    name: str
    title: str
    ended: str
    sentences: tuple[str, ...]
    plot: "Drawn | None"
    """None where nothing was confirmed."""
    gains: Table
    interrupts: Table


def tuning(
    study: str, searches: Sequence[Searched], plots: Sequence["Drawn | None"]
) -> TuningShown | None:
    """The section of a study's page; None where it has none. A search has a plot, or None.

    Studies of P3 about interrupts have one, and those whose reader names searches.
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
            + (f", on {searched.machine}" if searched.machine else ""),
            *(_EMULATED * searched.emulated),
            *(_sentence(each) for each in searched.phases),
        ),
        plot,
        _gains(searched),
        _interrupts(searched),
    )


_EMULATED = (
    "its virtual machines were emulated: what is measured of them says nothing of virtual machines"
    " elsewhere",
)


def tuned_rows(searches: Sequence[Searched]) -> Iterator[tuple[object, ...]]:
    """All of it for CSV: see TUNED_HEADINGS."""
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
    """Each figure of each workload, with its name: of several settings, one of which people choose,
    that has the setting."""
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
