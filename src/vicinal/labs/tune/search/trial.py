"""A trial: one fresh start of what is measured, under one setting; kept as a line of JSON."""

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
    """What measuring raises where further trials would be in vain, as with a card that is gone."""


class Stage(StrEnum):
    """What a trial was for."""

    SCREENING = "screening"
    HALVING = "halving"
    REFINING = "refining"
    CONFIRMING = "confirming"


@dataclass(frozen=True)
class Measured:
    """What measuring one trial gives."""

    values: Mapping[str, float]
    """By the names in Objective, in their units; others may be there too."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What the machine counted meanwhile: vicinal.labs.tune.evidence has it."""


Measure = Callable[[Setting, str], Measured]
"""(setting, phase) -> the trial's figures. Raises VicinalError where the trial failed, and
SearchEndsError where there is no use in more."""


@dataclass(frozen=True)
class Trial:
    """One trial, and where in the search it stands."""

    number: int
    phase: str
    stage: Stage
    block: int
    """Trials of a block ran one soon after the other, in an order that was drawn."""
    position: int
    """In its block; 0 ran first."""
    setting: Mapping[str, Value]
    values: Mapping[str, float]
    """Empty where it failed."""
    evidence: Mapping[str, Any]
    seconds: float
    """That it took, with starting and setting."""
    error: str | None = None
    """Why it failed."""

    to_dict = asdict

    @property
    def failed(self) -> bool:
        """Whether it has no values."""
        return self.error is not None

    def cost(self, objective: Objective) -> float:
        """What it cost: see Objective. Raises KeyError if it failed."""
        return objective.cost(self.values[objective])


def fault_of(values: Mapping[str, float], objectives: Iterable[Objective]) -> str | None:
    """Why values are none that a search can use; None where they are."""
    for objective in objectives:
        value = values.get(objective)
        if value is None:
            return f"the trial gave no {objective}"
        if not isfinite(value) or value <= 0:
            return f"{objective} is {value:g}, which is no measurement"
    return None


def write_line(trial: Trial) -> str:
    """A trial as a line of a file, with its end."""
    return json.dumps(trial.to_dict(), ensure_ascii=False) + "\n"


def read_trials(path: Path) -> list[Trial]:
    """The trials of a file of such lines; a last line that was cut off is left out.

    Raises VicinalError for any other line that is no trial, and OSError.
    """
    lines = path.read_text().splitlines(keepends=True)
    found = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break  # the end of a process came while it was written
        try:
            found.append(_trial(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise VicinalError(
                f"{path}:{number} is no trial of a search ({error})",
                "begin the search anew, with another file",
            ) from error
    return found


def _trial(values: Mapping[str, Any]) -> Trial:
    return Trial(**{**values, "stage": Stage(values["stage"])})
