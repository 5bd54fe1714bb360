"""The content of the page in its order: sections made from a summary, before they are written."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vicinal.labs.report import curves, dots, numbers, tables
from vicinal.labs.report.answer import Answer, answers, reservation
from vicinal.labs.report.drawing import Plot
from vicinal.labs.report.glance import glance
from vicinal.labs.report.lines import lines_rule, wrong_lines
from vicinal.labs.report.names import EMULATED, called_so, slug
from vicinal.labs.report.palette import Style, comparison_styles, styles
from vicinal.labs.report.references import Reference, note
from vicinal.labs.report.split import split
from vicinal.labs.report.tables import Table, split_changes
from vicinal.labs.report.tails import tail
from vicinal.labs.study.analysis.summary import Cell, RuleChecked, Summary
from vicinal.labs.study.file.model import Comparison, Quantity, Study, Workload, control_name

_GROUPS = {
    "Point to point": {"latency", "bandwidth", "bidirectional", "message-rate", "multi-pair"},
    "One-sided": {"put", "get", "accumulate", "put-bidirectional", "read", "write", "atomic"},
    "Collectives": {"barrier", "bcast", "allgather", "allreduce", "alltoall", "reduce"},
}
_APPLICATIONS, _OTHERS = "Applications", "Other operations"

_GIB = 1024**3


@dataclass(frozen=True)
class Fact:
    """A fact about how a result was measured."""

    name: str
    value: str


def facts(manifest: Mapping[str, Any], study: Study) -> Iterator[Fact]:
    """Facts of the design, then of the machine, versions and variables. All values are text."""
    design = study.design
    trials = f"{design.trials} blocks"
    if design.most_trials is not None:
        trials += (
            f", then more until intervals are within {100 * design.precision:g} % of the ratio,"
            f" at most {design.most_trials}"
        )
    yield Fact(
        "Design",
        f"{trials}; each block has every environment once, in random order; a trial is a fresh"
        " launch",
    )
    yield Fact(
        "Claims",
        f"Wilcoxon's signed-rank test on the blocks' ratios at {design.alpha:g}, corrected by"
        f" {str(design.correction).title()} over the whole study; equivalent is within"
        f" ±{100 * design.margin:g} %",
    )
    yield Fact("Measured", _text(manifest.get("created")))
    yield Fact("Seed", _text(manifest.get("seed")))
    yield from _host(manifest.get("host") or {})
    for name, value in (manifest.get("versions") or {}).items():
        yield Fact(f"Version of {name}", _text(value))
    variables = manifest.get("variables") or {}
    yield Fact(
        "Environment",
        " ".join(f"{name}={value}" for name, value in variables.items())
        or "no variables that MPI libraries or Vicinal use",
    )


def _host(host: Mapping[str, Any]) -> Iterator[Fact]:
    virtual = ", a virtual machine itself" if host.get("virtual") else ""
    yield Fact(
        "Processor",
        f"{_text(host.get('cpu'))}: {_text(host.get('cores'))} cores,"
        f" {_text(host.get('threads'))} threads{virtual}",
    )
    memory = host.get("memory_bytes")
    if isinstance(memory, int | float):
        yield Fact("Memory", f"{memory / _GIB:.1f} GiB")
    yield Fact("Load at the beginning", _text(host.get("load")))
    cards = [card for card in host.get("network") or [] if isinstance(card, Mapping)]
    for card in cards:
        words = [f"{name} {value}" for name, value in card.items() if value and name != "name"]
        yield Fact(f"Network card {_text(card.get('name'))}", ", ".join(words))
    if not cards:
        yield Fact("Network cards", "none that are hardware or a hypervisor's")
    for name, value in (host.get("hypervisor") or {}).items():
        yield Fact(f"Hypervisor: {name}", _text(value))
    known = {"cpu", "cores", "threads", "virtual", "memory_bytes", "load", "network", "hypervisor"}
    for name in sorted(set(host) - known):
        yield Fact(name.replace("_", " ").capitalize(), _text(host[name]))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)


@dataclass(frozen=True)
class Source:
    """One result: its summary, and the manifest with its conditions."""

    summary: Summary
    manifest: Mapping[str, Any]
    name: str
    """The name of its folder."""


@dataclass(frozen=True)
class Drawn:
    """A plot that was written."""

    name: str
    title: str
    alternative: str
    markup: str
    """SVG, to be put into a page."""


Draw = Callable[[Plot], Drawn]
"""Writes a plot out."""


@dataclass(frozen=True)
class Mark:
    """A rule of benchmarking that figures of a section break."""

    rule: str
    broken: tuple[str, ...]


@dataclass
class Section:
    """The section of one workload."""

    anchor: str
    title: str
    how: str
    plots: list[Drawn] = field(default_factory=list)
    emulated_plots: list[Drawn] = field(default_factory=list)
    """Plots of emulated environments, which have axes of their own."""
    stars: str = ""
    """What the published figures in its plots are. Empty if there are none."""
    compared: list[Table] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    """Rules that its figures break."""
    wrong_lines: list[str] = field(default_factory=list)
    """Lines of its plots that break the rule about lines."""
    failures: list[str] = field(default_factory=list)
    missing: str = ""
    """The reason why nothing was measured. Empty if something was."""


@dataclass(frozen=True)
class Group:
    """The sections of one kind of workloads, under a heading."""

    anchor: str
    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Glance:
    """All workloads on one chart, in two layouts."""

    wide: Drawn
    narrow: Drawn
    stars: str
    """What the published figures in the chart are; empty if there are none."""
    emulated: bool


@dataclass(frozen=True)
class Part:
    """A result in the form of the page."""

    anchor: str
    source: Source
    styles: Mapping[str, Style]
    comparison_styles: Mapping[Comparison, Style]
    answers: tuple[Answer, ...]
    reservation: str
    """What the control says about all answers; empty if nothing."""
    glances: tuple[Glance, ...]
    """One of real environments and one of emulated environments, if each has comparisons."""
    environments: Table
    groups: tuple[Group, ...]
    rules: tuple[RuleChecked, ...]
    """The rules of the summary, and the rule about lines in plots."""
    published: Table | None
    control: tuple[str, ...]
    facts: tuple[Fact, ...]

    @property
    def summary(self) -> Summary:
        return self.source.summary


def part(source: Source, anchor: str, draw: Draw) -> Part:
    """The content of a result. All anchors and names of plots begin with `anchor`, if not empty."""
    named = called_so(source.summary.study, source.summary.emulated)
    summary = replace(source.summary, study=named)
    source = replace(source, summary=summary)
    looks = styles(summary.study)
    prefix = f"{anchor}-" if anchor else ""

    glances = tuple(_glances(summary, looks, prefix, draw))
    groups = tuple(_groups(summary, looks, prefix, draw))
    sections = [section for group in groups for section in group.sections]
    lines = lines_rule(wrong for section in sections for wrong in section.wrong_lines)
    return Part(
        anchor=anchor,
        source=source,
        styles=looks,
        comparison_styles=comparison_styles(summary.study.design.comparisons, looks),
        answers=tuple(answers(summary)),
        reservation=reservation(summary),
        glances=glances,
        environments=tables.environments(summary),
        groups=groups,
        rules=(*summary.rules, lines),
        published=tables.published(summary, summary.published) if summary.published else None,
        control=tuple(_control(summary)),
        facts=tuple(facts(source.manifest, summary.study)),
    )


def plots_of(summary: Summary) -> int:
    """The largest number of plots, for a progress bar: those without data are left out."""
    panels = 2 if summary.emulated else 1
    per_workload = [
        2 * len(workload.statistics) + (3 if workload.sizes else 1)
        for workload in summary.study.workloads
    ]
    return panels * (2 + sum(per_workload))


def _glances(
    summary: Summary, looks: Mapping[str, Style], prefix: str, draw: Draw
) -> Iterator[Glance]:
    for emulated in (False, True):
        chosen = replace(
            summary,
            compared=tuple(each for each in summary.compared if summary.emulates(each) == emulated),
            published=() if emulated else summary.published,
        )
        name = f"{prefix}glance" + EMULATED * emulated
        wide = glance(name, chosen, looks, wide=True, emulated=emulated)
        narrow = glance(f"{name}-narrow", chosen, looks, wide=False, emulated=emulated)
        if wide is not None and narrow is not None:
            stars = note(wide.stars, summary.study.design.comparisons, looks)
            yield Glance(draw(wide), draw(narrow), stars, emulated)


def group_of(workload: Workload) -> str:
    """The heading of a workload."""
    for title, operations in _GROUPS.items():
        if workload.operation in operations:
            return title
    applied = workload.quantity in (Quantity.TIME, Quantity.PERFORMANCE)
    return _APPLICATIONS if applied else _OTHERS


def marks_of(rules: tuple[RuleChecked, ...], workload: str) -> list[Mark]:
    """The rules that a workload breaks. The analysis begins such a line `environment, name`."""
    names_it = re.compile(rf", {re.escape(workload)}(?=: | at |, )")
    found = [
        Mark(rule.name, tuple(broken for broken in rule.broken if names_it.search(broken)))
        for rule in rules
    ]
    return [mark for mark in found if mark.broken]


def _groups(
    summary: Summary, looks: Mapping[str, Style], prefix: str, draw: Draw
) -> Iterator[Group]:
    for title in (*_GROUPS, _APPLICATIONS, _OTHERS):
        workloads = [each for each in summary.study.workloads if group_of(each) == title]
        if workloads:
            sections = tuple(_section(summary, each, looks, prefix, draw) for each in workloads)
            yield Group(f"{prefix}{slug(title)}", title, sections)


def _section(
    summary: Summary, workload: Workload, looks: Mapping[str, Style], prefix: str, draw: Draw
) -> Section:
    index = [each.name for each in summary.study.workloads].index(workload.name)
    name = f"{prefix}{index + 1:02}-{slug(workload.name)}"
    cells = [
        cell
        for cell in summary.cells
        if cell.workload == workload.name and cell.environment in looks
    ]
    section = Section(name, workload.title, _how(workload))
    section.marks = marks_of(summary.rules, workload.name)
    section.failures = tables.failures(summary, cells)
    if workload.name in summary.study.unavailable:
        section.missing = summary.study.unavailable[workload.name]
    measured = [cell for cell in cells if cell.across]
    if not measured:
        section.missing = section.missing or "no trial of it gave a value"
        return section
    stars: list[Reference] = []
    for emulated, shown in ((False, section.plots), (True, section.emulated_plots)):
        for plot in _panel(summary, workload, measured, looks, name, emulated=emulated):
            section.wrong_lines += wrong_lines(plot, workload.name)
            shown.append(draw(plot))
            stars += plot.stars
    section.marks += marks_of((lines_rule(section.wrong_lines),), workload.name)
    section.stars = note(stars, summary.study.design.comparisons, looks)
    for comparison in summary.study.design.comparisons:
        compared = [
            each
            for each in summary.compared
            if each.workload == workload.name and each.comparison == comparison
        ]
        if compared:
            section.compared.append(tables.compared(summary, workload, comparison, compared))
            changes = split_changes(summary, workload, comparison, compared)
            if changes is not None:
                section.compared.append(changes)
    found = (
        tables.measured(summary, workload, measured),
        tables.parts(summary, workload, measured),
        tables.samples(summary, workload, measured),
    )
    section.tables = [table for table in found if table is not None]
    return section


def _panel(
    summary: Summary,
    workload: Workload,
    measured: list[Cell],
    looks: Mapping[str, Style],
    name: str,
    *,
    emulated: bool,
) -> Iterator[Plot]:
    """The plots of real environments, or those of emulated environments.

    Times of an emulated processor say nothing about real hardware, so the two share no axis. A
    comparison with an emulated side is emulated. Published figures are of real machines, so they
    are only in plots of real environments.
    """
    cells = [cell for cell in measured if (cell.environment in summary.emulated) == emulated]
    compared = [
        each
        for each in summary.compared
        if each.workload == workload.name and summary.emulates(each) == emulated
    ]
    published = () if emulated else summary.published
    if emulated:
        workload = replace(workload, title=f"{workload.title}, emulated")
        name += EMULATED
    sizes = sorted({cell.size for cell in cells if cell.size is not None})
    kind = curves if len(sizes) > 1 else dots
    absolute = curves.curve if kind is curves else dots.values
    for statistic in workload.statistics:
        if not any(statistic in cell.across for cell in cells):
            continue
        ending = slug(statistic)
        yield absolute(f"{name}-{ending}", workload, statistic, cells, looks, published)
        if any(each.ratio is not None and each.statistic == statistic for each in compared):
            yield kind.ratios(
                f"{name}-{ending}-ratio",
                workload,
                statistic,
                compared,
                summary.study,
                looks,
                published,
            )
    parts = split(f"{name}-split", workload, cells, looks)
    if parts is not None:
        yield parts
    shown: list[int | None] = [*dict.fromkeys((sizes[0], sizes[-1]))] if sizes else [None]
    for size in shown:
        plot = tail(f"{name}-tail-{size or 0}", workload, size, cells, looks)
        if plot is not None:
            yield plot


def _how(workload: Workload) -> str:
    ranks = f"{workload.ranks} ranks" if workload.ranks != 1 else "1 rank"
    options = ", ".join(f"{name} {value}" for name, value in workload.options.items())
    words = f"{workload.driver}, {workload.operation}, {ranks}"
    if options:
        words += f", {options}"
    return f"{words}; instead of {workload.stands_for}" if workload.stands_for else words


def _control(summary: Summary) -> Iterator[str]:
    study, control = summary.study, summary.control
    if control is None:
        wanted = study.design.control
        yield (
            "This result has no A/A control. It is unknown whether the machine differs between two"
            " runs of the same environment."
            if wanted is None
            else f"The A/A control of {wanted} gave no values to compare."
        )
        return
    title = next(
        (each.title for each in study.environments if each.name == control.environment),
        control.environment,
    )
    yield (
        f"“{title}” was measured twice in each block, as if it were two environments"
        f" ({control_name(control.environment)}). The largest difference was"
        f" {numbers.percent(control.widest)}: differences below that may be the machine's noise,"
        " whatever their p value."
    )
    if control.untested:
        yield (
            f"In {control.untested} of {control.tests + control.untested} cells there were too few"
            " blocks to test whether it differs from itself."
        )
    if control.tests == 0:
        return
    if control.different:
        yield (
            "It differed from itself in the cells below. Look for other programs that ran on the"
            " machine."
        )
    else:
        yield f"It differed from itself in none of {control.tests} cells that were tested."
