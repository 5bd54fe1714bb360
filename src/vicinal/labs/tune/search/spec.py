"""The tuning file: YAML, checked against its schema.

    spec = read_spec(Path("tuning.yaml"))
    found = find(spec.space(available, present), spec.plan, measure)

Errors name the line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import FAULTY, Faults
from vicinal.base.wording import nearest
from vicinal.base.yaml import Form, line_of, load_parts, read_text
from vicinal.labs.statistics.least_pairs import ALPHA
from vicinal.labs.tune.search.blocks import Budget
from vicinal.labs.tune.search.finding import Plan
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Setting, Space, Value

FORM = Form(
    kind="tuning file",
    file=Path(__file__).with_name("spec.json"),
    documentation="docs/reference/tuning-file.md",
    begin="begin with the one in docs/reference/tuning-file.md",
)


@dataclass(frozen=True)
class Spec:
    """The contents of a tuning file."""

    name: str
    title: str
    plan: Plan
    workloads: Mapping[str, Mapping[str, Any]]
    """By phase: a workload as in a study file, without a name."""
    knobs: Mapping[str, tuple[Value, ...] | None]
    """Values to try, by knob; None: all values of the knob."""
    environment: Mapping[str, Any] | None = None
    """An environment as in a study file, without a name; the workloads run there."""
    tools: Mapping[str, Path] = field(default_factory=dict)
    """Paths of programs that are not in Debian, by the names that drivers use."""

    def space(self, available: Mapping[str, Sequence[Value]], present: Setting) -> Space:
        """The space of these knobs on a host; `available` has the host's knobs and their
        values.

        Raises VicinalError for a knob that the host does not have, and as Space.of().
        """
        rows = {}
        for name, values in self.knobs.items():
            if name not in available:
                raise VicinalError(
                    f"this host has no knob {name!r}",
                    nearest(name, available) if available else "remove it",
                )
            rows[name] = tuple(available[name]) if values is None else values
        return Space.of(rows, present)


def read_spec(path: Path) -> Spec:
    """Read a tuning file. Raises VicinalError, with line and remedy, for all of its errors."""
    return parse_spec(path, read_text(FORM, path))


def parse_spec(path: Path, text: str) -> Spec:
    """Parse the text of a tuning file; errors call the file `path`. Raises as read_spec()."""
    faults = Faults()
    values = load_parts(FORM, path, text, faults)
    for errors in (_phase_faults(path, values), _knob_faults(path, values)):
        faults.extend(errors)
    faults.check()
    phases, budget = values["phases"], values["budget"]
    minutes = budget.get("minutes")
    return Spec(
        name=str(values["name"]),
        title=str(values["title"]),
        plan=Plan(
            objectives=_objectives(values.get("objectives", ())),
            budget=Budget(
                None if "trials" not in budget else int(budget["trials"]),
                None if minutes is None else 60 * float(minutes),
            ),
            phases=tuple(str(phase["name"]) for phase in phases),
            seed=int(values.get("seed", 1)),
            alpha=float(values.get("alpha", ALPHA)),
            confirmation=int(values.get("confirmation", Plan.confirmation)),
            own_objectives={
                str(phase["name"]): _objectives(phase["objectives"])
                for phase in phases
                if "objectives" in phase
            },
        ),
        # Unchanged: these values know their lines, and drivers check them.
        workloads={str(phase["name"]): phase["workload"] for phase in phases},
        knobs={
            str(name): None if row == "all" else tuple(_value(each) for each in row)
            for name, row in values["knobs"].items()
        },
        environment=values.get("environment"),
        tools={
            str(name): path.parent.absolute() / str(tool)
            for name, tool in values.get("tools", {}).items()
        },
    )


def _phase_faults(path: Path, values: Any) -> Iterator[VicinalError]:
    """Errors for phases and objectives that are repeated or missing."""
    phases = values["phases"]
    yield from _twice(path, phases, "phases", [phase["name"] for phase in phases])
    for each in (values, *phases):
        yield from _twice(path, each.get("objectives"), "objectives", each.get("objectives", ()))
    for at, phase in enumerate(phases):
        if "objectives" not in values and "objectives" not in phase:
            yield VicinalError(
                f"{line_of(path, phases, at)}: the phase {phase['name']!r} has no objectives",
                "add objectives to the phase, or to the file for all phases without their own",
            )


def _knob_faults(path: Path, values: Any) -> Iterator[VicinalError]:
    """Errors for values of knobs that a search cannot use."""
    for name, row in values["knobs"].items():
        if row is not FAULTY and row != "all":
            yield from _value_faults(path, values["knobs"], str(name), row)


def _objectives(names: Sequence[str]) -> tuple[Objective, ...]:
    return tuple(Objective(each) for each in names)


def _twice(path: Path, container: Any, key: str, names: Sequence[str]) -> Iterator[VicinalError]:
    for at, name in enumerate(names):
        if name in names[:at]:
            yield VicinalError(
                f"{line_of(path, container, at)}: {key} has {name!r} twice", "remove one of them"
            )


def _value_faults(path: Path, knobs: Any, name: str, row: Sequence[Any]) -> Iterator[VicinalError]:
    where = line_of(path, knobs, name)
    values = [_value(each) for each in row]
    if len(set(values)) != len(values):
        yield VicinalError(f"{where}: {name!r} has a value twice", "write each value once")
    if len({isinstance(each, str) for each in values}) > 1:
        yield VicinalError(
            f"{where}: {name!r} has both numbers and words",
            "put numbers that are words into quotes",
        )
    elif not isinstance(values[0], str) and values != sorted(values):
        yield VicinalError(
            f"{where}: the values of {name!r} are not in ascending order",
            "write the smallest first, because the search takes adjacent numbers as similar",
        )


def _value(value: Any) -> Value:
    """A value as knobs have it: some versions of YAML parse on and off as true and false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    return str(value)
