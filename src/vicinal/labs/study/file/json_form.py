"""Studies as JSON: the keys and values of a study file, with all defaults written out.

The manifest of a result contains the adapted study in this form.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Design, Environment, Published, Study, Workload
from vicinal.labs.study.file.reading import study_from_values
from vicinal.labs.study.file.reading_environments import plain

_PLACE = Path("the study")
"""The name that errors give instead of a file."""


def study_to_json(study: Study) -> dict[str, Any]:
    """The keys of the study as in a study file, with its adaptations."""
    return {
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "source": study.source,
        "environments": [_environment(each) for each in study.environments],
        "workloads": [_workload(each) for each in study.workloads],
        "design": _design(study.design),
        "published": [_published(each) for each in study.published],
        "notes": list(study.notes),
        "adaptations": [asdict(each) for each in study.adaptations],
        "unavailable": dict(study.unavailable),
    }


def study_from_json(values: dict[str, Any]) -> Study:
    """The inverse of study_to_json(). Raises VicinalError if the values are not a study."""
    try:
        return study_from_values(_PLACE, values)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VicinalError(
            f"{_PLACE} cannot be read ({type(error).__name__}: {error})",
            "use a study that `vicinal study run` wrote",
        ) from error


def _environment(environment: Environment) -> dict[str, Any]:
    values = {
        "name": environment.name,
        "title": environment.title,
        "cluster": plain(environment.cluster),
        "mpi": environment.mpi.value,
        "path": environment.path.value,
        "variables": dict(environment.variables),
    }
    if not environment.cma:
        values["cma"] = False
    if environment.progress is not None:
        values["progress"] = environment.progress.value
    if environment.unsupported is not None:
        values["unsupported"] = environment.unsupported
    if environment.stands_for is not None:
        values["stands_for"] = environment.stands_for
    return values


def _workload(workload: Workload) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": workload.name,
        "title": workload.title,
        "driver": workload.driver,
        "operation": workload.operation,
        "quantity": workload.quantity.value,
        "sizes": list(workload.sizes),
        "ranks": workload.ranks,
        "samples": workload.samples,
        "seconds": workload.seconds,
        "statistics": [each.value for each in workload.statistics],
        "options": plain(workload.options),
    }
    if workload.unsupported is not None:
        values["unsupported"] = workload.unsupported
    if workload.stands_for is not None:
        values["stands_for"] = workload.stands_for
    return values


def _design(design: Design) -> dict[str, Any]:
    values = {
        "comparisons": [asdict(each) for each in design.comparisons],
        "trials": design.trials,
        "precision": design.precision,
        "alpha": design.alpha,
        "margin": design.margin,
        "correction": design.correction.value,
    }
    if design.most_trials is not None:
        values["most_trials"] = design.most_trials
    if design.control is not None:
        values["control"] = design.control
    return values


def _published(figure: Published) -> dict[str, Any]:
    values: dict[str, Any] = {
        "source": figure.source,
        "workload": figure.workload,
        "quantity": figure.quantity.value,
        "value": figure.value,
        "unit": figure.unit,
        "statistic": figure.statistic.value,
        "note": figure.note,
    }
    if figure.environment is not None:
        values["environment"] = figure.environment
    if figure.comparison is not None:
        values["comparison"] = list(figure.comparison)
    if figure.size is not None:
        values["size"] = figure.size
    return values
