"""The knobs of a search on this host: knobs of its interfaces, and variables of its jobs.

A name with a slash is a knob of the host, such as `eth1/rx-usecs`. Other names are variables.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vicinal.base.errors import VicinalError
from vicinal.base.wording import nearest
from vicinal.labs.study.file.model import Environment
from vicinal.labs.tune.knob import Knob, Value
from vicinal.labs.tune.knobs.host import HostKnob
from vicinal.labs.tune.knobs.variables import UNSET, VariableKnob, variable_knobs
from vicinal.labs.tune.search import space
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.capability import Ability, try_knob
from vicinal.mpi.variables import check_variables

_CAP_NET_ADMIN = 12
_PROGRESS = "VICINAL_PROGRESS"

Asked = Mapping[str, Sequence[space.Value] | None]
"""Values by knob, as in a tuning file; None: all values."""


@dataclass(frozen=True)
class SearchKnobs:
    """The knobs of a search."""

    host: Mapping[str, HostKnob]
    variables: Mapping[str, VariableKnob]
    environment: Environment
    """The environment whose jobs get the variables."""

    @property
    def all(self) -> Mapping[str, Knob]:
        """All knobs, the host's first."""
        return {**self.host, **self.variables}

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Interfaces of the host's knobs, without duplicates."""
        found = (knob.interface for knob in self.host.values())
        return tuple(dict.fromkeys(name for name in found if name))

    def present(self) -> dict[str, space.Value]:
        """The present values. Raises VicinalError if a value cannot be read."""
        return {name: knob.read() for name, knob in self.all.items()}

    def of_host(self, setting: space.Setting) -> dict[str, Value]:
        """The values of a setting for the host's knobs."""
        return {name: _knob_value(setting[name]) for name in self.host}

    def with_variables(self, setting: space.Setting) -> Environment:
        """The environment with the variables of a setting."""
        others = {
            name: text
            for name, text in self.environment.variables.items()
            if name not in self.variables
        }
        chosen = {name: str(setting[name]) for name in self.variables if setting[name] != UNSET}
        return replace(self.environment, variables={**others, **chosen})


def find_knobs(
    applier: Applier, asked: Asked, environment: Environment, inherited: Mapping[str, str]
) -> SearchKnobs:
    """Find the knobs of these names, and check the requested values. Nothing is set.

    `inherited` are the variables that jobs have from this process. Raises VicinalError if a knob
    does not exist or is left alone, or a value is invalid.
    """
    known = {each.name: each for each in variable_knobs({**inherited, **environment.variables})}
    host: dict[str, HostKnob] = {}
    variables: dict[str, VariableKnob] = {}
    for name, values in asked.items():
        if "/" in name:
            host[name] = applier.knob(name)
            host[name].read()
            for value in values or ():
                host[name].check(_knob_value(value))
        elif name in known:
            variables[name] = known[name]
            for value in values or ():
                _check_variable(known[name], value)
        else:
            raise VicinalError(f"there is no knob {name!r}", nearest(name, known))
    if _PROGRESS in variables and environment.progress is not None:
        raise VicinalError(
            f"{_PROGRESS} is a knob of the search, and the environment sets its progress",
            "remove progress from the environment",
        )
    return SearchKnobs(host, variables, environment)


def rows_of(
    applier: Applier, knobs: SearchKnobs, asked: Asked
) -> dict[str, tuple[space.Value, ...]]:
    """The values to try for each knob; values of the host's knobs are set and read back.

    The caller holds the lock of the applier's journal. Raises VicinalError if a knob cannot be set
    to a requested value.
    """
    rows: dict[str, tuple[space.Value, ...]] = {}
    for name, values in asked.items():
        if name in knobs.host:
            rows[name] = _taken(applier, knobs.host[name], values)
        else:
            rows[name] = tuple(knobs.variables[name].values if values is None else values)
    return rows


@contextmanager
def taken_from(variables: MutableMapping[str, str], names: Sequence[str]) -> Iterator[None]:
    """Remove variables within the context, because a search sets them for each job."""
    before = {name: variables.pop(name) for name in names if name in variables}
    try:
        yield
    finally:
        variables.update(before)


def _taken(
    applier: Applier, knob: HostKnob, values: Sequence[space.Value] | None
) -> tuple[space.Value, ...]:
    """The values that were read back as set."""
    if not applier.host.system.capabilities >> _CAP_NET_ADMIN & 1:
        raise VicinalError(f"only root may set {knob.name}", "be root, or leave the knob out")
    wanted = None if values is None else [_knob_value(each) for each in values]
    present = knob.read()
    if wanted == [present]:
        return (present,)
    found = try_knob(applier, knob, values=wanted)
    if found.ability is not Ability.SETTABLE:
        raise VicinalError(
            f"{knob.name} cannot be tuned: {found.ability.value} ({found.why})",
            "remove it from the search",
        )
    if wanted is None:
        return found.taken
    refused = [each for each in wanted if each != present and each not in found.taken]
    # A knob whose link goes down for a while is tried with a single value.
    if refused and knob.gentle:
        raise VicinalError(
            f"{knob.name} cannot be {' or '.join(map(str, refused))} ({found.why})",
            f"use only values that it takes: {', '.join(map(str, found.taken))}",
        )
    return tuple(wanted)


def _check_variable(knob: VariableKnob, value: space.Value) -> None:
    knob.check(_knob_value(value))
    if value != UNSET:
        check_variables({knob.name: str(value)})


def _knob_value(value: space.Value) -> Value:
    """A value of a search as knobs have it: knobs have no fractions."""
    return str(value) if isinstance(value, float) else value
