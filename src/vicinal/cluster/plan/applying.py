"""Executing plans, with a line in the journal before and after each step."""

from collections.abc import Callable, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Action, Plan, Shown, Step
from vicinal.cluster.plan.resource import Resource

Show = Callable[[Shown], None]


def apply(
    plan: Plan,
    journal: Journal,
    show: Show = lambda _: None,
    settle: Callable[[], None] = lambda: None,
) -> None:
    """Execute the steps of a plan; if a step fails or is interrupted, remove what this call made.

    `show` gets each step before its execution. `settle` is called after the last step. If `settle`
    raises, the steps are undone too, for example because another host failed.
    """
    made: list[Resource] = []
    try:
        for step in plan.changes:
            show(step)
            if step.action is Action.REMOVE:
                _remove(step.resource, journal)
            elif step.action is Action.START:
                step.resource.start()
            else:
                # Before the line, because an interrupted write can leave the line in the journal.
                made.append(step.resource)
                journal.write(step.resource, Event.BEGUN)
                step.resource.create()
                journal.write(step.resource, Event.MADE)
        settle()
    except BaseException:
        _roll_back(made, journal, show)
        raise


def _remove(resource: Resource, journal: Journal) -> None:
    journal.write(resource, Event.REMOVING)
    resource.remove()
    journal.write(resource, Event.REMOVED)


def _roll_back(made: Sequence[Resource], journal: Journal, show: Show) -> None:
    """Remove what was made. What cannot be removed stays in the journal, for the next command."""
    for resource in reversed(made):
        show(Step(Action.REMOVE, resource, "rolled back"))
        try:
            _remove(resource, journal)
        except (VicinalError, OSError):
            continue


def take_away(plan: Plan, journal: Journal, show: Show = lambda _: None) -> None:
    """Execute a plan that only removes. A failed step does not stop the other steps.

    Raises the first error after the last step.
    """
    failure: VicinalError | None = None
    for step in plan.changes:
        show(step)
        try:
            _remove(step.resource, journal)
        except VicinalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
