"""Computes the summary of a result, which contains all that a report shows."""

from vicinal.labs.study.analysis.cautions import cautions, emulated_in
from vicinal.labs.study.analysis.cells import Cells, Gathered, gather
from vicinal.labs.study.analysis.comparing import compare_all, judge_control
from vicinal.labs.study.analysis.published import compare_published
from vicinal.labs.study.analysis.rules import check_rules
from vicinal.labs.study.analysis.summary import Cell, Summary
from vicinal.labs.study.file.json_form import study_from_json
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.result.reading import Result


def summarise(result: Result) -> Summary:
    """The summary of a result, by the rules of its study.

    Reads one trial at a time. Raises VicinalError if the manifest has no complete study.
    """
    study = study_from_json(result.manifest["study"])
    cells = gather(result, study)
    compared = compare_all(study, cells)
    control = judge_control(study, cells)
    return Summary(
        study=study,
        cells=tuple(cell.cell(study.design.alpha) for cell in _in_order(study, cells)),
        compared=compared,
        control=control,
        published=compare_published(study, cells),
        rules=check_rules(result, study, cells, compared),
        warnings=cautions(result, study, cells, compared, control),
        emulated=tuple(emulated_in(result.trials)),
    )


def measured_cells(result: Result) -> tuple[Study, tuple[Cell, ...]]:
    """A result's study and cells, without comparisons.

    Raises VicinalError if the manifest has no complete study.
    """
    study = study_from_json(result.manifest["study"])
    cells = _in_order(study, gather(result, study))
    return study, tuple(cell.cell(study.design.alpha) for cell in cells)


def _in_order(study: Study, cells: Cells) -> list[Gathered]:
    """Cells in the study's order, smaller sizes first; without cells of the A/A control."""
    workloads = {workload.name: index for index, workload in enumerate(study.workloads)}
    environments = {each.name: index for index, each in enumerate(study.environments)}
    return sorted(
        (cell for cell in cells.values() if cell.environment in environments),
        key=lambda cell: (
            workloads[cell.workload.name],
            environments[cell.environment],
            -1 if cell.size is None else cell.size,
        ),
    )
