"""Communication and computation of two environments beside each other: which of both changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.labs.report import numbers
from vicinal.labs.report.tables import Column, Table
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.split import SplitChange
from vicinal.labs.study.analysis.summary import Compared, Summary
from vicinal.labs.study.file.model import Comparison, Workload


@dataclass(frozen=True)
class PartChange:
    """A part of an application's time on both sides, in s: means over blocks."""

    name: str
    base: Estimate
    test: Estimate
    ratio: Estimate | None
    """Of means, test/base; None where the base has no such time."""
    saved: float
    """Negative where the test takes longer."""
    base_share: float
    """Of all of the base's time, 0 to 1."""
    test_share: float


def part_changes(split: SplitChange) -> tuple[PartChange, ...]:
    """The whole time, and the two that it is made of."""
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
    """Comparisons of which both sides say it, each once: it is the same for all statistics."""
    once: dict[object, Compared] = {}
    for each in found:
        if each.split is not None:
            once.setdefault((each.comparison, each.workload, each.size), each)
    return list(once.values())


def split_changes(
    summary: Summary, workload: Workload, comparison: Comparison, found: Sequence[Compared]
) -> Table | None:
    """The table of a comparison; None where a side does not say what its time went to."""
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
