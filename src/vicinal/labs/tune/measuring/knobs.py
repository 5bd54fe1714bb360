"""The knobs of a search on this machine: those of its interfaces, and variables of its jobs.

A name with a slash is the machine's, `eth1/rx-usecs`; any other is a variable's.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vicinal.base.errors import VicinalError
from vicinal.base.wording import nearest
from vicinal.labs.study.file.model import Environment
from vicinal.labs.tune.knob import Knob, Value
from vicinal.labs.tune.knobs.machine import MachineKnob
from vicinal.labs.tune.knobs.variables import UNSET, VariableKnob, variable_knobs
from vicinal.labs.tune.search import space
from vicinal.labs.tune.settings.capability import Ability, try_knob
from vicinal.labs.tune.settings.keeper import Keeper
from vicinal.mpi.variables import check_variables

_CAP_NET_ADMIN = 12
_PROGRESS = "VICINAL_PROGRESS"

Asked = Mapping[str, Sequence[space.Value] | None]
"""Values by knob, as a tuning file has them; None is all."""


@dataclass(frozen=True)
class SearchKnobs:
    """Those that a search turns."""

    machine: Mapping[str, MachineKnob]
    variables: Mapping[str, VariableKnob]
    environment: Environment
    """Whose variables they are."""

    @property
    def all(self) -> Mapping[str, Knob]:
        """Of both kinds, the machine's first."""
        return {**self.machine, **self.variables}

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Of the machine's knobs, each once."""
        found = (knob.interface for knob in self.machine.values())
        return tuple(dict.fromkeys(name for name in found if name))

    def present(self) -> dict[str, space.Value]:
        """What they have now. Raises VicinalError where that cannot be read."""
        return {name: knob.read() for name, knob in self.all.items()}

    def of_machine(self, setting: space.Setting) -> dict[str, Value]:
        """The machine's part of a setting."""
        return {name: _knob_value(setting[name]) for name in self.machine}

    def with_variables(self, setting: space.Setting) -> Environment:
        """The environment with the jobs' part of it."""
        others = {
            name: text
            for name, text in self.environment.variables.items()
            if name not in self.variables
        }
        chosen = {name: str(setting[name]) for name in self.variables if setting[name] != UNSET}
        return replace(self.environment, variables={**others, **chosen})


def find_knobs(
    keeper: Keeper, asked: Asked, environment: Environment, inherited: Mapping[str, str]
) -> SearchKnobs:
    """The knobs of these names, and that they can have the values that are asked for.

    `inherited` are the variables that jobs have from this process. Nothing is set. Raises
    VicinalError for a knob that is not there or is left alone, and for a value that can be none.
    """
    known = {each.name: each for each in variable_knobs({**inherited, **environment.variables})}
    machine: dict[str, MachineKnob] = {}
    variables: dict[str, VariableKnob] = {}
    for name, values in asked.items():
        if "/" in name:
            machine[name] = keeper.knob(name)
            machine[name].read()
            for value in values or ():
                machine[name].check(_knob_value(value))
        elif name in known:
            variables[name] = known[name]
            for value in values or ():
                _check_variable(known[name], value)
        else:
            raise VicinalError(f"there is no knob {name}", nearest(name, known))
    if _PROGRESS in variables and environment.progress is not None:
        raise VicinalError(
            f"{_PROGRESS} is a knob of the search, and the environment sets its progress",
            "leave progress out of the environment",
        )
    return SearchKnobs(machine, variables, environment)


def rows_of(keeper: Keeper, knobs: SearchKnobs, asked: Asked) -> dict[str, tuple[space.Value, ...]]:
    """The values that each knob is tried with; those of the machine are set and read back.

    Whoever calls it holds the lock of the keeper's journal. Raises VicinalError where a knob cannot
    be set to a value that is asked for.
    """
    rows: dict[str, tuple[space.Value, ...]] = {}
    for name, values in asked.items():
        if name in knobs.machine:
            rows[name] = _taken(keeper, knobs.machine[name], values)
        else:
            rows[name] = tuple(knobs.variables[name].values if values is None else values)
    return rows


@contextmanager
def taken_from(variables: MutableMapping[str, str], names: Sequence[str]) -> Iterator[None]:
    """Take variables away while a search sets them for each job by itself."""
    before = {name: variables.pop(name) for name in names if name in variables}
    try:
        yield
    finally:
        variables.update(before)


def _taken(
    keeper: Keeper, knob: MachineKnob, values: Sequence[space.Value] | None
) -> tuple[space.Value, ...]:
    """Those of the values that are read back as they were set."""
    if not keeper.machine.host.capabilities >> _CAP_NET_ADMIN & 1:
        raise VicinalError(f"only root may set {knob.name}", "be root, or leave it out")
    wanted = None if values is None else [_knob_value(each) for each in values]
    present = knob.read()
    if wanted == [present]:
        return (present,)
    found = try_knob(keeper, knob, values=wanted)
    if found.ability is not Ability.SETTABLE:
        raise VicinalError(
            f"{knob.name} cannot be tuned: {found.ability.value} ({found.why})",
            "leave it out of the search",
        )
    if wanted is None:
        return found.taken
    refused = [each for each in wanted if each != present and each not in found.taken]
    # One whose link goes down for a while is tried with a single value.
    if refused and knob.gentle:
        raise VicinalError(
            f"{knob.name} cannot be {' or '.join(map(str, refused))} ({found.why})",
            f"leave that out: it takes {', '.join(map(str, found.taken))}",
        )
    return tuple(wanted)


def _check_variable(knob: VariableKnob, value: space.Value) -> None:
    knob.check(_knob_value(value))
    if value != UNSET:
        check_variables({knob.name: str(value)})


def _knob_value(value: space.Value) -> Value:
    """A value of a search as knobs have it: they know no fractions."""
    return str(value) if isinstance(value, float) else value
