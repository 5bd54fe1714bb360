"""Doing what a plan says, with a line in the journal before and after each step."""

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
    """Do the steps. What fails, or is interrupted, leaves nothing that this call made.

    `show` is told of each step before it is done. `settle` is called after the last one: what it
    raises undoes them too, as where another host could not do its part.
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
                # First: an interruption while the line is written leaves it in the journal, too.
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
    """Take away what was made. What cannot be stays in the journal, for the next command."""
    for resource in reversed(made):
        show(Step(Action.REMOVE, resource, "rolled back"))
        try:
            _remove(resource, journal)
        except (VicinalError, OSError):
            continue


def take_away(plan: Plan, journal: Journal, show: Show = lambda _: None) -> None:
    """Do a plan that only removes: what fails does not keep the rest from being taken away.

    Raises the first error when all others are gone.
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
