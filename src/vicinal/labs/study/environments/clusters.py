"""The clusters of a study's environments: made once, kept for all of its trials, taken away.

Environments that describe the same nodes share them, and differ in what their ranks are told: one
without a region has its messages go by the network of nodes that have one, and the region's counts
show that they do. So what is compared are the paths, and not two makings of the same nodes.

All clusters are up side by side from the first trial to the last, so that each environment can be
once in each block. Idle nodes cost little: two emulated machines used 0.3 % of a core each.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.file.reading import parse_cluster
from vicinal.cluster.manager import bring_up, cluster_state, take_down
from vicinal.cluster.plan.resource import Condition
from vicinal.cluster.plan.state import cluster_names, journal_of, sole_command
from vicinal.labs.study.file.model import Environment

Say = Callable[[str], None]

_STILL_THERE_SECONDS = 0.5
"""For a node that was killed to be gone, on a machine that has time."""
_SETTLED_SECONDS = 5.0
_LOOK_SECONDS = 0.2

_NONE = "none"
"""A cluster's region, where it has none."""


class StudyClusters:
    """Clusters of one run of a study, whose names all begin with `prefix`."""

    def __init__(self, prefix: str, environments: Sequence[Environment]) -> None:
        self._prefix = prefix
        self._descriptions: list[dict[str, Any]] = []
        self._users: list[list[str]] = []
        self._made: dict[int, set[str]] = {}
        """Keys of what this run has of each cluster, by its number."""
        self._whole: dict[int, set[str]] = {}
        """The same, when all of it was there."""
        for environment in environments:
            self._join(environment)

    def _join(self, environment: Environment) -> None:
        """Have an environment use nodes that others have, or its own."""
        wanted = {"region": {}, **environment.cluster}
        for description, users in zip(self._descriptions, self._users, strict=True):
            regions = [each["region"] for each in (wanted, description)]
            if _without_region(wanted) == _without_region(description) and (
                regions[0] == regions[1] or _NONE in regions
            ):
                users.append(environment.name)
                if description["region"] == _NONE:
                    description["region"] = wanted["region"]
                return
        self._descriptions.append(wanted)
        self._users.append([environment.name])

    def sharing(self, environment: str) -> list[str]:
        """The environments that have the same nodes, itself among them."""
        return list(self._users[self._number(environment)])

    def _number(self, environment: str) -> int:
        return next(n for n, users in enumerate(self._users) if environment in users)

    def name_of(self, environment: str) -> str:
        """The name of an environment's cluster."""
        return self._name(self._number(environment))

    def open(self, environment: str, say: Say) -> None:
        """Make an environment's cluster, if it is not there for another one already.

        Raises VicinalError where it cannot be made; nothing of it is left then.
        """
        if self.name_of(environment) not in cluster_names():
            number = self._number(environment)
            say(f"making the nodes of {', '.join(self._users[number])}")
            self._bring_up(number, say)

    def ended(self, environment: str) -> list[str]:
        """What of an environment's cluster does not run any more, by its key: `node/node1`.

        A node that is killed is there for a moment longer, so a cluster that is whole is looked at
        again.
        """
        began, number = time.monotonic(), self._number(environment)
        while True:
            try:
                state = cluster_state(self._name(number))
                there = journal_of(self._name(number)).entries()
            except (VicinalError, OSError):
                return [f"cluster {self._name(number)}"]
            found = [each.key for each in state.pieces if each.condition is not Condition.READY]
            found += sorted(self._whole.get(number, set()) - set(there))
            if found or time.monotonic() - began > _STILL_THERE_SECONDS:
                return found
            time.sleep(_LOOK_SECONDS)

    def taken_away(self, environment: str) -> bool:
        """Whether another command took away an environment's cluster, or some of it.

        What ends by itself stays in the cluster's journal. Waits for a command that is at work.
        """
        number = self._number(environment)
        name = self._name(number)
        try:
            with sole_command(name):
                entries = journal_of(name).entries()
        except VicinalError:  # it is at work for long
            return True
        there = {key for key, entry in entries.items() if entry.whole}
        return not self._made.get(number, set()) <= there

    def repair(self, environment: str, say: Say) -> None:
        """Make what is missing of an environment's cluster. Raises VicinalError.

        What fails at once is tried again: a node may be just ending.
        """
        number = self._number(environment)
        say(f"making again the nodes of {', '.join(self._users[number])}")
        began = time.monotonic()
        while True:
            try:
                self._bring_up(number)
                return
            except (VicinalError, OSError) as error:
                if time.monotonic() - began > _SETTLED_SECONDS:
                    if isinstance(error, VicinalError):
                        raise
                    raise VicinalError(describe_os_error(error), "see `vicinal status`") from error
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Take them away; what is left of others of this prefix, too."""
        sweep(self._prefix)

    def _name(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def _bring_up(self, number: int, say: Say = lambda _: None) -> None:
        users = ", ".join(self._users[number])
        text = json.dumps({**self._descriptions[number], "name": self._name(number)})
        # JSON is YAML. Errors call the file by this name; relative paths in it begin here.
        cluster = parse_cluster(Path.cwd() / f"environment {users}", text)
        try:
            bring_up(cluster, say=say)
            self._whole[number] = set(journal_of(cluster.name).entries())
        finally:  # also where it was rolled back: then nobody else took it away
            self._made[number] = set(journal_of(cluster.name).entries())


def sweep(prefix: str) -> None:
    """Take away all clusters whose names begin so, however much of them is there.

    Raises VicinalError where one stays; the others are gone then.
    """
    troubles = []
    for name in cluster_names():
        if name.startswith(f"{prefix}-"):
            try:
                take_down(name)
            except VicinalError as error:
                troubles.append(error)
    if troubles:
        raise troubles[0]


def _without_region(description: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in description.items() if key != "region"}
