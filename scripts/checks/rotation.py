"""Which long suites have their turn in a run of CI, whatever changed.

Each suite is in one of eleven slots, and a run takes one slot. CI starts in a fresh clone, so only
the history of commits distinguishes runs. The number of commits would not do: with ten commits in
each landing, every run would meet the same slot. So landings are counted. Pauses between commits
show them: CI and the reading of the next issue lie between the last commit of a landing and the
first commit of the next.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from checks.changes import git
from checks.suites import Suite

SLOTS = 11
PAUSE_SECONDS = 40 * 60
"""587 commits of 21 landings had 23 such pauses. A pause within the work on a landing skips a
slot, which then has its turn eleven landings later.
"""


def landings(times: Sequence[int]) -> int:
    """How many groups without a pause the commits' times form, oldest first."""
    pauses = (later - earlier > PAUSE_SECONDS for earlier, later in pairwise(times))
    return bool(times) + sum(pauses)


def count_landings(tree: Path) -> int:
    """How many landings the history of HEAD shows."""
    times = git(tree, "log", "--first-parent", "--reverse", "--format=%ct").split()
    return landings([int(each) for each in times])


def slots(suites: Iterable[Suite]) -> list[list[Suite]]:
    """The long suites in slots of about the same length, each suite in one slot."""
    dealt: list[list[Suite]] = [[] for _ in range(SLOTS)]
    for suite in sorted(suites, key=lambda each: (-each.seconds, each.name)):
        min(dealt, key=lambda slot: sum(each.seconds for each in slot)).append(suite)
    return dealt


def turn(suites: Iterable[Suite], landing: int) -> list[Suite]:
    """The suites whose turn it is in a landing."""
    return slots(suites)[landing % SLOTS]
