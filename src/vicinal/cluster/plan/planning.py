"""Making plans: a comparison of the desired resources, the journal and the present state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.plan.differences import differences
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Condition, Held, Observation, Resource

_AS_IT_IS = "unchanged"


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
