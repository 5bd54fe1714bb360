"""What a search measures, as a study has it: its phases are workloads of one environment.

So whatever launches and reads a study's workloads does so for a search, and knows no difference.
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
"""The only one's name."""

_DEFAULT: Mapping[str, Any] = {
    "cluster": {"nodes": [{"name": "host", "backend": "native"}], "region": {}}
}
"""This host, and a region."""

_QUANTITIES = {
    Objective.APPLICATION: Quantity.TIME,
    Objective.BANDWIDTH: Quantity.BANDWIDTH,
}


def study_of(path: Path, spec: Spec) -> Study:
    """The environment and the workloads of a search; `path` is what errors call its file.

    Raises VicinalError, with the line, for those that a study could not have, or that say more than
    one figure.
    """
    if spec.environment is None and (names := [name for name in spec.knobs if "/" in name]):
        raise VicinalError(
            f"{path} has knobs of interfaces ({', '.join(names)}) and no environment: by default "
            "messages go through this host's memory, where they change nothing",
            "give it an environment whose messages go through them",
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
    """What a workload measures that does not say so: what its phase is to make better."""
    named = (_QUANTITIES[each] for each in spec.plan.by_phase[phase] if each in _QUANTITIES)
    return next(named, Quantity.LATENCY).value


def _check_workload(path: Path, phase: str, workload: Mapping[str, Any]) -> None:
    if "name" in workload:
        raise VicinalError(
            f"{line_of(path, workload, 'name')}: the workload of {phase} has a name",
            "leave it out: it is called as its phase",
        )
    sizes = workload.get("sizes", ())
    if not isinstance(sizes, list) or len(sizes) > 1:
        if "sizes" not in workload:
            return
        raise VicinalError(
            f"{line_of(path, workload, 'sizes')}: the phase {phase} has not one size, but {sizes}",
            "write a list of one, such as [64], and a phase for each other size",
        )


def _with(values: Mapping[str, Any], **more: str) -> Any:
    """The same values, which still know their lines, and more of them."""
    whole: Any = values.copy() if hasattr(values, "copy") else dict(values)
    whole |= more
    return whole
