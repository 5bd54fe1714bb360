"""A trial: one fresh launch of a workload under one setting, stored as a line of JSON."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Setting, Value


class SearchEndsError(VicinalError):
    """Further trials are useless, for example because a card no longer exists."""


class Stage(StrEnum):
    """The stage of the search that ran a trial."""

    SCREENING = "screening"
    HALVING = "halving"
    REFINING = "refining"
    CONFIRMING = "confirming"


@dataclass(frozen=True)
class Measured:
    """The figures and evidence of one trial."""

    values: Mapping[str, float]
    """By the names of Objective, in their units; other figures may be present."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Counters of the host during the trial, from vicinal.labs.tune.evidence."""


Measure = Callable[[Setting, str], Measured]
"""(setting, phase) -> the trial's figures. Raises VicinalError if the trial failed, and
SearchEndsError if further trials are useless.
"""


@dataclass(frozen=True)
class Trial:
    """One trial, and its position in the search."""

    number: int
    phase: str
    stage: Stage
    block: int
    """The trials of a block ran in close succession, in random order."""
    position: int
    """Position in the block; 0 ran first."""
    setting: Mapping[str, Value]
    values: Mapping[str, float]
    """Empty if the trial failed."""
    evidence: Mapping[str, Any]
    seconds: float
    """Duration, including launch and setting of knobs."""
    error: str | None = None
    """The error of a failed trial."""

    to_dict = asdict

    @property
    def failed(self) -> bool:
        """Whether the trial failed, and has no values."""
        return self.error is not None

    def cost(self, objective: Objective) -> float:
        """The cost by an objective. Raises KeyError if the trial failed."""
        return objective.cost(self.values[objective])


def fault_of(values: Mapping[str, float], objectives: Iterable[Objective]) -> str | None:
    """Why a search cannot use the values; None if it can."""
    for objective in objectives:
        value = values.get(objective)
        if value is None:
            return f"the trial gave no {objective}"
        if not isfinite(value) or value <= 0:
            return f"{objective} is {value:g}, which is no valid measurement"
    return None


def write_line(trial: Trial) -> str:
    """The trial as a line of JSON, with a line break."""
    return json.dumps(trial.to_dict(), ensure_ascii=False) + "\n"


def read_trials(path: Path) -> list[Trial]:
    """Read the trials of a file; an incomplete last line is left out.

    Raises VicinalError for any other invalid line, and OSError.
    """
    lines = path.read_text().splitlines(keepends=True)
    found = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break  # a process ended while it wrote this line
        try:
            found.append(_trial(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise VicinalError(
                f"{path}:{number} is not a trial of a search ({error})",
                "start the search again, with another file",
            ) from error
    return found


def _trial(values: Mapping[str, Any]) -> Trial:
    return Trial(**{**values, "stage": Stage(values["stage"])})
