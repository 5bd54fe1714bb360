"""`vicinal plan`: the steps that `vicinal up` would execute.

Scripts call this command repeatedly, so this module imports neither typer nor rich.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from vicinal.base.plain_call import Argument
from vicinal.base.waiting import told
from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.manager import DEFAULT_FILE, plan_cluster
from vicinal.cluster.plan.planning import Action, Shown

_CHANGES = 2
"""Exit status of `plan` if `up` would change anything."""

_SIGNS = {
    Action.CREATE: "+",
    Action.REMOVE: "-",
    Action.START: ">",
    Action.STOP: "x",
    Action.KEEP: " ",
}


def plan(
    file: Annotated[Path, Argument("The cluster's file.", metavar="FILE")] = DEFAULT_FILE,
) -> int:
    """Show what `up` would do; exit with 2 if it would change anything."""
    with told("checking the present state"):
        steps = plan_cluster(read_cluster(file))
    for step in steps:
        why = "" if step.action is Action.KEEP else f"  ({step.why})"
        sys.stdout.write(f"{_SIGNS[step.action]} {step.key}{why}\n")
        for change in step.changes:
            sys.stdout.write(f"    {change}\n")
    sys.stdout.write(f"{summary(steps)}\n")
    return _CHANGES if any(step.action is not Action.KEEP for step in steps) else 0


def summary(steps: Sequence[Shown], *, done: bool = False) -> str:
    """Return the number of steps of each action: `6 to create`, or `6 created` if `done`."""
    counts = {
        ("to create", "created"): Action.CREATE,
        ("to start", "started"): Action.START,
        ("to remove", "removed"): Action.REMOVE,
        ("unchanged", "unchanged"): Action.KEEP,
    }
    actions = [step.action for step in steps]
    parts = [f"{actions.count(action)} {words[done]}" for words, action in counts.items()]
    return ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing"
