"""Published figures, and the measured values beside them, in the published unit."""

import re
from dataclasses import replace

from vicinal.labs.statistics.compare import paired_t
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.ratio import paired_ratio_estimate
from vicinal.labs.statistics.samples import Scale
from vicinal.labs.study.analysis.cells import Cells, Gathered, cell_label
from vicinal.labs.study.analysis.comparing import pair
from vicinal.labs.study.analysis.summary import PublishedComparison
from vicinal.labs.study.analysis.units import convert
from vicinal.labs.study.file.model import Comparison, Published, Statistic, Study

P_VALUE = "p"
"""Unit of a published p value."""


def compare_published(study: Study, cells: Cells) -> tuple[PublishedComparison, ...]:
    """Each published figure of a study with the measured value, or with the reason why there is
    none.
    """
    return tuple(
        _of_all_sizes(study, cells, each)
        if each.comparison is not None and each.size is None
        else _compare_one(study, cells, each)
        for each in study.published
    )


def _of_all_sizes(study: Study, cells: Cells, published: Published) -> PublishedComparison:
    """A ratio that was published without a size, such as `up to`: the most extreme of all sizes.

    It is chosen among several sizes, so it is larger than the ratio at a size chosen in advance.
    """
    sizes = [
        size for each in study.workloads if each.name == published.workload for size in each.sizes
    ]
    found = [_compare_one(study, cells, replace(published, size=size)) for size in sizes]
    measured = [each for each in found if each.measured is not None]
    if not measured or published.unit == P_VALUE:
        return _compare_one(study, cells, published)
    farthest = min if published.value < 1 else max
    chosen = farthest(measured, key=lambda each: each.measured.value if each.measured else 1.0)
    return replace(chosen, published=published, at=chosen.published.size)


def _compare_one(study: Study, cells: Cells, published: Published) -> PublishedComparison:
    here = _with_stand_ins(study, cells, published)
    measured = (
        _absolute(study, cells, here) if here.comparison is None else _compared(study, cells, here)
    )
    adapted = here != published or _is_adapted(study, published)
    if isinstance(measured, str):
        return PublishedComparison(published, None, measured, adapted)
    return PublishedComparison(published, measured, adapted=adapted)


def _with_stand_ins(study: Study, cells: Cells, published: Published) -> Published:
    """The figure, with its environments replaced by the stand-ins that were measured."""

    def measured(name: str) -> str:
        if any(key[:2] == (name, published.workload) for key in cells):
            return name
        stands = (each.name for each in study.environments if each.stands_for == name)
        return next(stands, name)

    environment = published.environment and measured(published.environment)
    if published.comparison is None:
        return replace(published, environment=environment)
    base, test = published.comparison
    return replace(published, comparison=(measured(base), measured(test)))


def _absolute(study: Study, cells: Cells, published: Published) -> Estimate | str:
    """The value measured in the environment, or why there is none."""
    if published.environment is None:
        return "the study does not name the environment of this value"
    cell = cells.get((published.environment, published.workload, published.size))
    values = cell.values(_statistic(cell, published)) if cell else {}
    if cell is None or not values:
        return _why_not(study, cells, published, [published.environment])
    found = median_estimate(list(values.values()), 1 - study.design.alpha)
    ends = [convert(end, cell.unit, published.unit) for end in (found.value, found.low, found.high)]
    value, low, high = ends
    if value is None or low is None or high is None:
        return f"it was measured in {cell.unit}, but published in {published.unit}"
    return replace(found, value=value, low=low, high=high)


def _compared(study: Study, cells: Cells, published: Published) -> Estimate | str:
    """The ratio or the p value of the same two environments, or why there is none."""
    assert published.comparison is not None
    cell = cells.get((published.comparison[0], published.workload, published.size))
    pairs = pair(
        cells,
        Comparison(*published.comparison),
        published.workload,
        published.size,
        published.statistic if cell is None else _statistic(cell, published),
    )
    if pairs is None:
        return _why_not(study, cells, published, list(published.comparison))
    base, test = pairs.sides
    if min(*base, *test) <= 0:
        return "a value is zero, so there is no ratio"
    if published.unit == P_VALUE:
        if len(base) < 2:
            return "a test needs at least two blocks"
        p_value = paired_t(test, base, Scale.DIFFERENCE).p_value  # as in the papers
        return Estimate(p_value, p_value, p_value, 0.0)
    found = paired_ratio_estimate(test, base, confidence=1 - study.design.alpha)
    if published.unit == "%":
        return replace(found, value=100 * found.value, low=100 * found.low, high=100 * found.high)
    return found


def _statistic(cell: Gathered, published: Published) -> Statistic:
    """The published statistic, or the only statistic that the program reports for each trial."""
    given = {statistic for trial in cell.trials.values() for statistic in trial.values}
    return next(iter(given)) if len(given) == 1 and cell.pooled is None else published.statistic


def _why_not(study: Study, cells: Cells, published: Published, environments: list[str]) -> str:
    for name in (published.workload, *environments):
        if name in study.unavailable:
            return f"{name}: {study.unavailable[name]}"
    for environment in environments:
        cell = cells.get((environment, published.workload, published.size))
        if cell is not None and not cell.trials and cell.failures:
            return f"all trials of {cell.label} failed"
    known = {workload.name: workload for workload in study.workloads}
    workload = known.get(published.workload)
    if workload is None:
        return f"the workload {published.workload} was left out"
    if published.size is not None and published.size not in workload.sizes:
        return f"{published.size} B was left out"
    labels = [cell_label(each, published.workload, published.size) for each in environments]
    return f"nothing was measured for {' or for '.join(labels)}"


def _is_adapted(study: Study, published: Published) -> bool:
    """Whether an adaptation concerns the figure: one of its names, or the whole study."""
    names = {published.workload, *(published.comparison or [published.environment])}
    for adaptation in study.adaptations:
        concerns = re.match(r"(?:workload|environment) ([^\s:]+)", adaptation.what)
        if concerns is None or concerns[1] in names:
            return True
    return False
