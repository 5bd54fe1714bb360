"""Plots of several results: one environment on several days, machines or versions.

Colours belong to results here, and the title names the environment. Each result's values have their
own intervals. Nothing is compared, because trials of two results make no pairs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.labs.report import curves, dots
from vicinal.labs.report.drawing import Plot, write_plot
from vicinal.labs.report.names import EMULATED, called_so, slug
from vicinal.labs.report.palette import Style, styles_of
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.cautions import emulated_in
from vicinal.labs.study.analysis.summarise import measured_cells
from vicinal.labs.study.analysis.summary import Cell
from vicinal.labs.study.analysis.units import convert
from vicinal.labs.study.file.model import Study, Workload
from vicinal.labs.study.result.reading import Result


@dataclass(frozen=True)
class Overlaid:
    """A result in such a plot."""

    name: str
    """A name for readers that no other result has."""
    study: Study
    cells: Sequence[Cell]
    emulated: Collection[str] = ()
    """Environments whose processors were emulated."""


def overlays(results: Sequence[Overlaid]) -> Iterator[Plot]:
    """A plot for each workload, statistic and environment that at least two results have.

    Results whose processors were emulated share no plot with the others.
    """
    looks = styles_of({each.name: each.name for each in results}, results[0].name)
    workloads = {each.name: each for result in results for each in result.study.workloads}
    environments = {each.name: None for result in results for each in result.study.environments}
    for number, workload in enumerate(workloads.values(), 1):
        for environment in environments:
            for emulated in (False, True):
                alike = [each for each in results if (environment in each.emulated) == emulated]
                prefix = f"overlay-{number:02}"
                for plot in _plots(prefix, alike, workload, environment, looks):
                    yield replace(plot, name=plot.name + EMULATED * emulated)


def overlays_of(study: Study) -> int:
    """The largest number of overlays for results of one study, for a progress bar."""
    return len(study.environments) * sum(len(each.statistics) for each in study.workloads)


def write_overlays(results: Sequence[tuple[str, Result]], folder: Path) -> int:
    """Write the overlays as PNG and SVG into a folder, and return their number.

    Raises VicinalError if a file cannot be written.
    """
    opened = []
    for name, result in results:
        study, cells = measured_cells(result)
        emulated = emulated_in(result.trials)
        opened.append(Overlaid(name, called_so(study, emulated), cells, emulated))
    count = 0
    for plot in overlays(opened):
        write_plot(plot, folder)
        count += 1
    return count


def _plots(
    prefix: str,
    results: Sequence[Overlaid],
    workload: Workload,
    environment: str,
    looks: Mapping[str, Style],
) -> Iterator[Plot]:
    titles = {each.name: each.title for result in results for each in result.study.environments}
    units = [cell.unit for result in results for cell in _cells_of(result, workload, environment)]
    found = [
        replace(same, environment=result.name)
        for result in results
        for cell in _cells_of(result, workload, environment)
        if (same := _in_unit(cell, units[0])) is not None
    ]
    titled = replace(workload, title=f"{workload.title}, {titles.get(environment, environment)}")
    for statistic in workload.statistics:
        there = [cell for cell in found if statistic in cell.across]
        if len({cell.environment for cell in there}) < 2:
            continue
        name = f"{prefix}-{slug(workload.name)}-{slug(environment)}-{slug(statistic)}"
        sizes = {cell.size for cell in there}
        draw = curves.curve if len(sizes) > 1 else dots.values
        yield draw(name, titled, statistic, there, looks)


def _cells_of(result: Overlaid, workload: Workload, environment: str) -> list[Cell]:
    wanted = (environment, workload.name)
    return [each for each in result.cells if (each.environment, each.workload) == wanted]


def _in_unit(cell: Cell, unit: str) -> Cell | None:
    """The cell in another unit. None if the units do not convert."""
    factor = convert(1.0, cell.unit, unit)
    if factor is None or factor == 1:
        return None if factor is None else cell
    return replace(
        cell,
        unit=unit,
        across={name: _times(each, factor) for name, each in cell.across.items()},
        values={
            name: tuple(value * factor for value in values) for name, values in cell.values.items()
        },
    )


def _times(estimate: Estimate, factor: float) -> Estimate:
    low, high = estimate.low * factor, estimate.high * factor
    return replace(estimate, value=estimate.value * factor, low=low, high=high)
