"""How to have what a search chose: the command that sets the machine, and lines for jobs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from vicinal.labs.tune.knobs.variables import UNSET
from vicinal.labs.tune.search.finding import Found
from vicinal.labs.tune.search.space import Point, Space, Value


@dataclass(frozen=True)
class Instruction:
    """One setting, and how it is applied."""

    phases: Sequence[str]
    """That it is for."""
    setting: Mapping[str, Value]
    """Of the knobs that it changes."""
    command: str | None
    """For a shell; None where no knob is the machine's."""
    shell: Sequence[str]
    """Lines before a job starts: exports of variables."""

    to_dict = asdict


def instructions(found: Found) -> list[Instruction]:
    """One for all phases, or one for each that wants its own; none without a better setting."""
    choice = found.choice
    if choice.common is not None:
        chosen = [([each.phase for each in choice.phases], choice.common)]
    else:
        chosen = [([each.phase], each.choice) for each in choice.phases]
    return [
        _instruction(found.space, phases, point)
        for phases, point in chosen
        if found.space.changes(point)
    ]


def _instruction(space: Space, phases: Sequence[str], point: Point) -> Instruction:
    setting = {name: after for name, (_, after) in space.changes(point).items()}
    machine = [f"{name}={value}" for name, value in setting.items() if "/" in name]
    return Instruction(
        phases,
        setting,
        shlex.join(["vicinal", "tune", "apply", *machine]) if machine else None,
        [_line(name, value) for name, value in setting.items() if "/" not in name],
    )


def _line(name: str, value: Value) -> str:
    return f"unset {name}" if value == UNSET else f"export {name}={shlex.quote(str(value))}"
