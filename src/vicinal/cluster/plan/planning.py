"""Making plans: a comparison of the desired resources, the journal and the present state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import zip_longest
from typing import Protocol, TypeAlias

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.base.sizes import show_short_size
from vicinal.base.wording import in_quotes
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Condition, Held, Json, Observation, Resource, Settings

_AS_IT_IS = "unchanged"
_UNITS = {"_bytes": 1, "_mib": 1 << 20}
"""Suffixes of the names of sizes, and the unit of each in bytes."""
_SIZES = {"memory": 1}
"""Sizes without such a suffix, and their units in bytes."""
_WHOLE = "spec"
"""An attribute that contains a whole node; its parts are shown as the node's attributes."""


class Action(StrEnum):
    """What happens to a resource."""

    KEEP = "keep"
    REMOVE = "remove"
    CREATE = "create"
    START = "start"
    STOP = "stop"


class Shown(Protocol):
    """A step as people see it, on this host or another."""

    @property
    def action(self) -> Action:
        """The step's action."""

    @property
    def key(self) -> str:
        """The resource's key, with the host's name if another host executes the step."""

    @property
    def why(self) -> str:
        """The reason, as a phrase."""

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes in the file, such as `members: 16 -> 24`; empty if they are not the reason."""


@dataclass(frozen=True)
class Step:
    """An action on one resource, and the reason."""

    action: Action
    resource: Resource
    why: str
    changes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The resource's key."""
        return self.resource.key


@dataclass(frozen=True)
class Plan:
    """Steps in order of execution, including the resources that are kept, which are only shown."""

    steps: tuple[Step, ...]

    @property
    def changes(self) -> tuple[Step, ...]:
        """The steps that change something."""
        return tuple(step for step in self.steps if step.action is not Action.KEEP)


def make_plan(
    desired: Sequence[Resource], recorded: Mapping[str, Entry], there: Mapping[str, Resource]
) -> Plan:
    """Return the steps from the present to the desired state.

    `desired` is in the order of creation: each resource after the resources that it needs.
    `recorded` has the journal's entries, and `there` the entries' resources, both by key. Raises
    VicinalError for a resource that exists without an entry, because another cluster or program
    created it; nothing changes then.
    """
    wanted = {resource.key: resource for resource in desired}
    gone: dict[str, str] = {}
    stopped: set[str] = set()
    for key, entry in recorded.items():
        why = _why_otherwise(entry, wanted.get(key))
        if not why:
            observed = there[key].observe()
            why = _why_repair(observed)
            if observed.condition is Condition.STOPPED:
                stopped.add(key)
        if not why:
            why = next((f"{need} is recreated" for need in entry.needs if need in gone), "")
        if why:
            gone[key] = why
    steps = [
        Step(Action.REMOVE, there[key], gone[key], _changes(recorded[key], wanted.get(key)))
        for key in reversed(gone)
    ]
    for resource in desired:
        key = resource.key
        if key in recorded and key not in gone:
            start = key in stopped
            action, why = (Action.START, "it is stopped") if start else (Action.KEEP, _AS_IT_IS)
            steps.append(Step(action, there[key], why))
            continue
        if key not in recorded:
            _check_unknown(resource)
        steps.append(Step(Action.CREATE, resource, gone.get(key, "it does not exist")))
    return Plan(tuple(steps))


def check_plan(plan: Plan) -> None:
    """Raise VicinalError for all resources of a plan that this host cannot provide.

    Called before the execution, so that no resource is removed for another that cannot be created.
    """
    released = sum(
        (step.resource.held for step in plan.steps if step.action is Action.REMOVE), start=Held()
    )
    faults = Faults()
    for step in plan.steps:
        if step.action is Action.CREATE:
            with faults.catch():
                step.resource.check(released)
    faults.check()


def removal(recorded: Iterable[str], there: Mapping[str, Resource]) -> Plan:
    """Return the steps that remove the recorded resources, in reverse order of creation."""
    keys = list(recorded)
    return Plan(
        tuple(Step(Action.REMOVE, there[key], "the cluster is removed") for key in reversed(keys))
    )


def _why_otherwise(entry: Entry, wanted: Resource | None) -> str:
    """Return why the journal's entry differs from the wanted resource; empty if it does not."""
    if wanted is None:
        return "the file no longer has it"
    if not entry.whole:
        return "a command was interrupted while it created or removed this"
    if dict(wanted.settings) != dict(entry.settings):
        return "the file changes it"
    return ""


def _why_repair(observed: Observation) -> str:
    match observed.condition:
        case Condition.ABSENT:
            return "it is gone"
        case Condition.BROKEN | Condition.CHANGING:
            return observed.why
        case Condition.READY | Condition.STOPPED:
            return ""


def _changes(entry: Entry, wanted: Resource | None) -> tuple[str, ...]:
    return () if wanted is None else differences(entry.settings, wanted.settings)


def _check_unknown(resource: Resource) -> None:
    observed = resource.observe()
    if observed.condition is not Condition.ABSENT:
        raise VicinalError(
            f"{resource.key} exists already, and this cluster did not create it",
            "remove it by hand if nobody uses it, or give the cluster another name",
        )


class _Missing(Enum):
    """The value of an attribute that only the other settings have."""

    MISSING = "not set"


_Value: TypeAlias = "Json | _Missing"


def differences(before: Settings, after: Settings) -> tuple[str, ...]:
    """Return each attribute that differs, such as `members: 16 -> 24`, sorted by name."""
    return tuple(sorted(_compare("", dict(before), dict(after))))


def _compare(name: str, before: _Value, after: _Value) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            inner = key if name in ("", _WHOLE) else f"{name}.{key}"
            yield from _compare(
                inner, before.get(key, _Missing.MISSING), after.get(key, _Missing.MISSING)
            )
    elif isinstance(before, list) and isinstance(after, list) and _has_parts(before, after):
        pairs = zip_longest(before, after, fillvalue=_Missing.MISSING)
        for index, (old, new) in enumerate(pairs):
            yield from _compare(f"{name}[{index}]", old, new)
    else:
        shown, unit = _unit(name)
        yield f"{shown}: {_show(before, unit)} -> {_show(after, unit)}"


def _has_parts(*lists: list[Json]) -> bool:
    return any(isinstance(each, dict | list) for items in lists for each in items)


def _unit(name: str) -> tuple[str, int | None]:
    """Return an attribute's name for people, and for a size the unit in bytes."""
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), unit
    return name, _SIZES.get(name.rpartition(".")[2])


def _show(value: _Value, unit: int | None) -> str:
    if value is None or isinstance(value, _Missing):
        return "not set"
    if unit is not None and isinstance(value, int):
        return show_short_size(unit * value)
    return in_quotes(value)
