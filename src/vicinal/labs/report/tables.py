"""The content of tables, for the page and for Markdown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.labs.report import numbers
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.split import SplitChange
from vicinal.labs.study.analysis.summary import (
    Cell,
    Compared,
    PublishedComparison,
    Summary,
    Verdict,
)
from vicinal.labs.study.file.model import Comparison, Environment, Statistic, Workload

VERDICT = "Verdict"


@dataclass(frozen=True)
class Column:
    """A column's heading, and whether its cells are numbers."""

    title: str
    number: bool = True


@dataclass(frozen=True)
class Table:
    """A table of plain text. The templates escape it for their format."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    verdicts: tuple[Verdict | None, ...] = ()
    """The verdict of each row, or empty."""
    name: str = ""
    """A short name, for a place where the workload is clear."""


def measured(summary: Summary, workload: Workload, cells: Sequence[Cell]) -> Table:
    """Absolute values: a row for each size and statistic, and a column for each environment."""
    environments = [
        each
        for each in summary.study.environments
        if any(cell.environment == each.name for cell in cells)
    ]
    unit = cells[0].unit
    sizes = sorted({cell.size for cell in cells}, key=lambda size: -1 if size is None else size)
    rows = []
    for size in sizes:
        of_size = {cell.environment: cell for cell in cells if cell.size == size}
        for statistic in _statistics(cells):
            values = [_value(of_size.get(each.name), statistic) for each in environments]
            rows.append((numbers.size(size), str(statistic), *values))
    columns = [Column("Size"), Column("Statistic", number=False)]
    columns += [Column(f"{each.title}, {unit}") for each in environments]
    caption = (
        f"{workload.title}: absolute values: the median of the trials, its 95 % interval where they"
        " are enough for one, and how many they are"
    )
    return Table(caption, tuple(columns), tuple(rows), name="Absolute values")


def compared(
    summary: Summary, workload: Workload, comparison: Comparison, found: Sequence[Compared]
) -> Table:
    """A comparison: both absolute values, their ratio, the tests and the verdict."""
    unit = found[0].unit
    titles = {each.name: each.title for each in summary.study.environments}
    headings = (
        Column("Size"),
        Column("Statistic", number=False),
        Column(f"Base, {unit}"),
        Column(f"Test, {unit}"),
        Column("Change"),
        Column("Ratio of blocks, test/base"),
        Column(VERDICT, number=False),
        Column("Efficiency"),
        Column("Pairs"),
        Column("p, paired t"),
        Column("p, Wilcoxon"),
        Column("p, corrected"),
    )
    rows = [
        (
            numbers.size(each.size),
            str(each.statistic),
            numbers.number(each.base.value),
            numbers.number(each.test.value),
            numbers.change(each.base.value, each.test.value),
            "–" if each.ratio is None else numbers.estimated(each.ratio),
            str(each.verdict),
            numbers.percent(each.efficiency),
            str(each.pairs),
            numbers.p_value(each.p_t),
            numbers.p_value(each.p_signed_rank),
            numbers.p_value(each.p_corrected),
        )
        for each in found
    ]
    name = f"{titles[comparison.test]} beside {titles[comparison.base]}"
    verdicts = tuple(each.verdict for each in found)
    return Table(f"{workload.title}: {name}", headings, tuple(rows), verdicts, name)


def samples(summary: Summary, workload: Workload, cells: Sequence[Cell]) -> Table | None:
    """All samples of each cell together. None if no cell has samples."""
    titles = {each.name: each.title for each in summary.study.environments}
    described = [cell for cell in cells if cell.pooled is not None and cell.environment in titles]
    if not described:
        return None
    unit = described[0].unit
    kinds = ("P50", "P90", "P95", "P99", "P99.9")
    columns = (
        Column("Environment", number=False),
        *map(Column, ("Size", "Samples", "Mean", "Deviation", "Minimum", *kinds, "Maximum")),
    )
    rows = []
    for cell in described:
        pooled = cell.pooled
        assert pooled is not None
        rows.append(
            (
                titles[cell.environment],
                numbers.size(cell.size),
                numbers.number(pooled.count),
                numbers.number(pooled.mean),
                numbers.number(pooled.standard_deviation),
                numbers.number(pooled.minimum),
                *(
                    numbers.number(pooled.percentiles[kind].value)
                    if kind in pooled.percentiles
                    else "–"
                    for kind in kinds
                ),
                numbers.number(pooled.maximum),
            )
        )
    caption = f"{workload.title}: the samples of all trials together, in {unit}"
    return Table(caption, columns, tuple(rows), name=f"All samples together, in {unit}")


def parts(summary: Summary, workload: Workload, cells: Sequence[Cell]) -> Table | None:
    """The parts of an application's time, in seconds and in percent. None if there are none."""
    titles = {each.name: each.title for each in summary.study.environments}
    split = [cell for cell in cells if cell.parts and cell.environment in titles]
    if not split:
        return None
    kinds = list(dict.fromkeys(part for cell in split for part in cell.parts))
    rows = []
    for cell in split:
        total = sum(part.value for part in cell.parts.values())
        rows.append(
            (
                titles[cell.environment],
                *(
                    f"{numbers.estimated(cell.parts[kind])}, "
                    f"{numbers.percent(cell.parts[kind].value / total)}"
                    if kind in cell.parts and total > 0
                    else "–"
                    for kind in kinds
                ),
                numbers.number(total),
            )
        )
    columns = [Column("Environment", number=False), *(Column(f"{kind}, s") for kind in kinds)]
    return Table(
        f"{workload.title}: where the time goes, means over trials",
        (*columns, Column("together, s")),
        tuple(rows),
        name="Where the time goes",
    )


def failures(summary: Summary, cells: Sequence[Cell]) -> list[str]:
    """Failed trials with their reasons. A trial that fails for several sizes appears once."""
    titles = {each.name: each.title for each in summary.study.environments}
    sizes: dict[tuple[str, str], list[int | None]] = {}
    for cell in cells:
        for failure in cell.failures:
            whose = titles.get(cell.environment, cell.environment)
            sizes.setdefault((whose, failure), []).append(cell.size)
    return [
        whose
        + (f", {numbers.size(of[0])}" if len(of) == 1 and of[0] is not None else "")
        + f": {failure}"
        for (whose, failure), of in sizes.items()
    ]


def published(summary: Summary, found: Sequence[PublishedComparison]) -> Table:
    """Published figures beside the measured ones."""
    study = summary.study
    titles = {each.name: each.title for each in study.environments}
    workloads = {each.name: each.title for each in study.workloads}
    rows = []
    for each in found:
        figure = each.published
        if figure.comparison is not None:
            test, base = figure.comparison[1], figure.comparison[0]
            whose = f"{titles.get(test, test)} / {titles.get(base, base)}"
        else:
            whose = titles.get(figure.environment or "", figure.environment or "–")
        unit = "" if figure.unit in ("ratio", "p") else figure.unit
        value = numbers.with_unit(figure.value, unit) + "×" * (figure.unit == "ratio")
        here = (
            _measured(each.measured, figure.unit)
            if each.measured is not None
            else f"not measured: {each.why_not}"
        )
        rows.append(
            (
                figure.source,
                workloads.get(figure.workload, figure.workload),
                whose,
                numbers.size(figure.size if each.at is None else each.at),
                str(figure.statistic) if figure.unit != "p" else "–",
                {"ratio": "ratio, test/base", "p": "p value"}.get(
                    figure.unit, str(figure.quantity)
                ),
                f"{value} ({figure.note})" if figure.note else value,
                here,
                "adapted" if each.adapted else "",
            )
        )
    headings = (
        Column("Source", number=False),
        Column("Workload", number=False),
        Column("Of", number=False),
        Column("Size"),
        Column("Statistic", number=False),
        Column("What", number=False),
        Column("Published", number=False),
        Column("Measured here", number=False),
        Column("Conditions", number=False),
    )
    return Table("Published figures, and what was measured here", headings, tuple(rows))


def _measured(estimate: Estimate, unit: str) -> str:
    if unit == "ratio":
        return f"{numbers.times(estimate.value)} {numbers.interval(estimate)}"
    return numbers.estimated(estimate, "" if unit == "p" else unit)


def environments(summary: Summary) -> Table:
    """The environments of the study: nodes, MPI library, transport, variables."""
    rows = [(*_environment(each), _here(summary, each)) for each in summary.study.environments]
    headings = ("Environment", "Name", "Nodes", "MPI", "Messages", "Waiting", "Variables", "Here")
    columns = tuple(Column(title, number=False) for title in headings)
    return Table("The environments of the study", columns, tuple(rows))


def _here(summary: Summary, environment: Environment) -> str:
    """Whether an environment was measured, and for which one it stands in."""
    study = summary.study
    if environment.name in study.unavailable:
        return f"not measured: {study.unavailable[environment.name]}"
    if not any(cell.environment == environment.name and cell.across for cell in summary.cells):
        return "not measured"
    words = "measured, emulated" if environment.name in summary.emulated else "measured"
    if environment.stands_for is None:
        return words
    titles = {each.name: each.title for each in study.environments}
    return f"{words}, instead of “{titles.get(environment.stands_for, environment.stands_for)}”"


def _environment(environment: Environment) -> tuple[str, ...]:
    count: Counter[str] = Counter()
    for node in environment.cluster.get("nodes", ()):
        count[node.get("backend", "container")] += int(node.get("count", 1))
    nodes = ", ".join(f"{number} {backend}" for backend, number in count.items())
    path = str(environment.path)
    if environment.path == "shared-memory":
        path += " with CMA" if environment.cma else " without CMA"
    return (
        environment.title,
        environment.name,
        nodes,
        str(environment.mpi),
        path,
        str(environment.progress or "default"),
        " ".join(f"{name}={value}" for name, value in environment.variables.items()) or "none",
    )


def _statistics(cells: Sequence[Cell]) -> list[Statistic]:
    there = {statistic for cell in cells for statistic in cell.across}
    return [statistic for statistic in Statistic if statistic in there]


def _value(cell: Cell | None, statistic: Statistic) -> str:
    if cell is None or statistic not in cell.across:
        return "–"
    return f"{numbers.estimated(cell.across[statistic])}, n={cell.trials}"


@dataclass(frozen=True)
class PartChange:
    """A part of an application's time on both sides, in s, as means over blocks."""

    name: str
    base: Estimate
    test: Estimate
    ratio: Estimate | None
    """Ratio of means, test/base. None if the base has no such time."""
    saved: float
    """In s. Negative if the test takes longer."""
    base_share: float
    """Fraction of the base's whole time, 0 to 1."""
    test_share: float


def part_changes(split: SplitChange) -> tuple[PartChange, ...]:
    """The whole time, and its parts communication and computation."""
    theirs, ours = split.theirs, split.ours
    by_communication = split.saved_by_communication
    return (
        PartChange("together", theirs.total, ours.total, split.total, split.saved, 1.0, 1.0),
        PartChange(
            "communication",
            theirs.communication,
            ours.communication,
            split.communication,
            by_communication,
            theirs.share,
            ours.share,
        ),
        PartChange(
            "computation",
            theirs.computation,
            ours.computation,
            split.computation,
            split.saved - by_communication,
            1 - theirs.share,
            1 - ours.share,
        ),
    )


def with_splits(found: Sequence[Compared]) -> list[Compared]:
    """Comparisons with a split, once each, because the split is the same for all statistics."""
    once: dict[object, Compared] = {}
    for each in found:
        if each.split is not None:
            once.setdefault((each.comparison, each.workload, each.size), each)
    return list(once.values())


def split_changes(
    summary: Summary, workload: Workload, comparison: Comparison, found: Sequence[Compared]
) -> Table | None:
    """How the parts of a time changed. None if a side has no parts."""
    rows = [
        (
            *((numbers.size(each.size),) if workload.sizes else ()),
            part.name,
            f"{numbers.estimated(part.base)}, {numbers.percent(part.base_share)}",
            f"{numbers.estimated(part.test)}, {numbers.percent(part.test_share)}",
            "–" if part.ratio is None else numbers.estimated(part.ratio),
            numbers.number(part.saved),
        )
        for each in with_splits(found)
        if each.split is not None
        for part in part_changes(each.split)
    ]
    if not rows:
        return None
    headings = (
        *((Column("Size"),) if workload.sizes else ()),
        Column("Part", number=False),
        Column("Base, s"),
        Column("Test, s"),
        Column("Ratio of means, test/base"),
        Column("Saved, s"),
    )
    titles = {each.name: each.title for each in summary.study.environments}
    name = (
        f"Communication and computation, {titles[comparison.test]} beside {titles[comparison.base]}"
    )
    caption = f"{workload.title}: {name}; means over the blocks, and what part of the time each is"
    return Table(caption, headings, tuple(rows), name=name)
