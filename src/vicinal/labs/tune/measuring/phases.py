"""The workloads of a search as a study: each phase is a workload of one environment.

So the study's modules launch the workloads and read their output without knowing of searches.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.yaml import line_of
from vicinal.labs.study.file.model import Quantity, Study
from vicinal.labs.study.file.reading import study_from_values
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.spec import Spec

ENVIRONMENT = "tuned"
"""The name of the only environment."""

_DEFAULT: Mapping[str, Any] = {
    "cluster": {"nodes": [{"name": "host", "backend": "host"}], "region": {}}
}
"""The default environment: this host, with a region."""

_QUANTITIES = {
    Objective.APPLICATION: Quantity.TIME,
    Objective.BANDWIDTH: Quantity.BANDWIDTH,
}


def study_of(path: Path, spec: Spec) -> Study:
    """The environment and workloads of a search as a study; errors call the file `path`.

    Raises VicinalError, with the line, for parts that a study cannot have, and for workloads with
    several figures.
    """
    if spec.environment is None and (names := [name for name in spec.knobs if "/" in name]):
        raise VicinalError(
            f"{path} has knobs of interfaces ({', '.join(names)}) and no environment: by default "
            "messages go through this host's memory, and these knobs have no effect",
            "add an environment whose messages go through the interfaces",
        )
    for phase, workload in spec.workloads.items():
        _check_workload(path, phase, workload)
    values = {
        "name": spec.name,
        "title": spec.title,
        "question": spec.title,
        "source": "vicinal tune",
        "environments": [_with(spec.environment or _DEFAULT, name=ENVIRONMENT)],
        "workloads": [
            _with(workload, name=phase, quantity=workload.get("quantity", _quantity(spec, phase)))
            for phase, workload in spec.workloads.items()
        ],
        "design": {"comparisons": []},
    }
    return study_from_values(path, values)


def _quantity(spec: Spec, phase: str) -> str:
    """The default quantity of a workload: that of its phase's objectives."""
    named = (_QUANTITIES[each] for each in spec.plan.by_phase[phase] if each in _QUANTITIES)
    return next(named, Quantity.LATENCY).value


def _check_workload(path: Path, phase: str, workload: Mapping[str, Any]) -> None:
    if "name" in workload:
        raise VicinalError(
            f"{line_of(path, workload, 'name')}: the workload of {phase!r} has a name",
            "remove it: the workload has the name of its phase",
        )
    sizes = workload.get("sizes", ())
    if not isinstance(sizes, list) or len(sizes) > 1:
        if "sizes" not in workload:
            return
        raise VicinalError(
            f"{line_of(path, workload, 'sizes')}: the phase {phase!r} needs one size, and has "
            f"{sizes}",
            "write a list of one size, such as [64], and a phase for each other size",
        )


def _with(values: Mapping[str, Any], **more: str) -> Any:
    """A copy of the values with `more`; the copy keeps its line numbers."""
    whole: Any = values.copy() if hasattr(values, "copy") else dict(values)
    whole |= more
    return whole
