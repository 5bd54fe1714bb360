"""Which suites a run of CI runs, and why, and which suites it leaves out."""

from dataclasses import dataclass
from pathlib import Path

from checks import changes, rotation
from checks.suites import Suite

BUDGET_SECONDS = 38 * 60
"""Of the 40 minutes that a run of CI may take. A suite may take longer than its figure."""
TURN_SECONDS = 60 * 60
"""A suite whose turn it is may end up to here. Otherwise it would not run for eleven landings."""
LATEST_SECONDS = 80 * 60
"""Suites that still run at this time are ended like suites that hang. After 90 minutes, CI is
ended from outside, and nothing would tell which suite ran.
"""


@dataclass(frozen=True)
class Choice:
    """A suite, and why it runs or does not run."""

    suite: Suite
    why: str
    is_turn: bool = False
    """Whether it runs even if the run then exceeds its time. Otherwise it might never run."""


@dataclass(frozen=True)
class Plan:
    """What a run of CI runs and leaves out."""

    run: list[Choice]
    """In the order of the run. Suites whose turn it is come first, so that each gets its turn."""
    left: list[Choice]


def make_plan(tree: Path, suites: list[Suite], base: str | None, spent: float) -> Plan:
    """Choose long suites for the time that is left of the budget, in seconds.

    Suites whose turn it is come first, then suites whose sources changed, then suites whose tests
    import what changed. Within each group, shorter suites come first, because more of them fit.
    """
    changed = changes.changed_files(tree, base)
    files = changes.Imports(tree)
    landing = rotation.count_landings(tree)
    strange = changes.unknown(changed, suites)
    long = [suite for suite in suites if suite.tier == "long"]
    turns = rotation.turn(long, landing)
    ranked: list[tuple[int, int, Choice]] = []
    for suite in long:
        imported = files.files_of(suite.folders) if suite.imports else set()
        why = changes.reason_of(suite, changed, imported)
        if suite in turns:
            rank, why = 0, f"its turn in landing {landing}" + (f"; {why}" if why else "")
        elif why:
            rank = 2 if "import" in why else 1
        elif strange:
            rank, why = 3, f"no suite is known to be for {strange[0]}, which changed"
        else:
            rank, why = 4, "nothing near it changed, and it is not its turn"
        ranked.append((rank, suite.seconds, Choice(suite, why, is_turn=rank == 0)))
    plan = Plan([], [])
    for rank, seconds, choice in sorted(ranked, key=lambda each: each[:2]):
        if rank == 4:
            plan.left.append(choice)
        elif rank == 0 or spent + seconds <= BUDGET_SECONDS:
            plan.run.append(choice)
            spent += seconds
        else:
            over = round(spent + seconds - BUDGET_SECONDS)
            plan.left.append(Choice(choice.suite, f"{choice.why}; it does not fit, by {over} s"))
    return plan


def still_fits(choice: Choice, spent: float) -> bool:
    """Whether to run a suite after this many seconds, because earlier suites may have been late."""
    return spent + choice.suite.seconds <= (TURN_SECONDS if choice.is_turn else BUDGET_SECONDS)
