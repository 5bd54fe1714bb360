"""The clusters of a study's environments: created once, used by all trials, then removed.

Environments that describe the same nodes share the nodes and differ in the settings of their ranks.
An environment without a region sends its messages over the network of nodes that have a region, and
the region's counters prove it. So the study compares paths, and not two sets of equal nodes.

All clusters run side by side from the first trial to the last, so that each block can contain each
environment. Idle nodes cost little: two emulated VMs used 0.3 % of a core each.
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
"""Time in which a killed node disappears, on a machine that is not overloaded."""
_SETTLED_SECONDS = 5.0
_LOOK_SECONDS = 0.2

_NONE = "none"
"""The region of a cluster without a region."""


class StudyClusters:
    """The clusters of one run of a study; all their names begin with `prefix`."""

    def __init__(self, prefix: str, environments: Sequence[Environment]) -> None:
        self._prefix = prefix
        self._descriptions: list[dict[str, Any]] = []
        self._users: list[list[str]] = []
        self._made: dict[int, set[str]] = {}
        """Keys of the resources of each cluster that this run created, by the cluster's number."""
        self._whole: dict[int, set[str]] = {}
        """The keys of each cluster when it was complete."""
        for environment in environments:
            self._join(environment)

    def _join(self, environment: Environment) -> None:
        """Let an environment share existing nodes that fit, or use its own."""
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
        """The environments that share this environment's nodes, including itself."""
        return list(self._users[self._number(environment)])

    def _number(self, environment: str) -> int:
        return next(n for n, users in enumerate(self._users) if environment in users)

    def name_of(self, environment: str) -> str:
        """The name of an environment's cluster."""
        return self._name(self._number(environment))

    def open(self, environment: str, say: Say) -> None:
        """Create an environment's cluster, unless another environment already uses it.

        Raises VicinalError if the cluster cannot be created; nothing of it is left then.
        """
        if self.name_of(environment) not in cluster_names():
            number = self._number(environment)
            say(f"creating the nodes of {', '.join(self._users[number])}")
            self._bring_up(number, say)

    def ended(self, environment: str) -> list[str]:
        """Keys of the resources of an environment's cluster that do not run any more, such as
        `node/node1`.

        A killed node exists for a moment longer. So a cluster that looks complete is checked again.
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
        """Whether another command removed an environment's cluster, or parts of it.

        Resources that end by themselves stay in the cluster's journal. Waits for a command that
        works on the cluster.
        """
        number = self._number(environment)
        name = self._name(number)
        try:
            with sole_command(name):
                entries = journal_of(name).entries()
        except VicinalError:  # the command works for long
            return True
        there = {key for key, entry in entries.items() if entry.whole}
        return not self._made.get(number, set()) <= there

    def repair(self, environment: str, say: Say) -> None:
        """Create what is missing of an environment's cluster. Raises VicinalError.

        If a repair fails at once, it is tried again, because a node may be just ending.
        """
        number = self._number(environment)
        say(f"creating the nodes of {', '.join(self._users[number])} again")
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
        """Remove the clusters, and clusters with this prefix that an earlier run left."""
        sweep(self._prefix)

    def _name(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def _bring_up(self, number: int, say: Say = lambda _: None) -> None:
        users = ", ".join(self._users[number])
        text = json.dumps({**self._descriptions[number], "name": self._name(number)})
        # JSON is YAML. Errors name the file so; relative paths start at the current directory.
        cluster = parse_cluster(Path.cwd() / f"environment {users}", text)
        try:
            bring_up(cluster, say=say)
            self._whole[number] = set(journal_of(cluster.name).entries())
        finally:  # also after a rollback, which is no removal by another command
            self._made[number] = set(journal_of(cluster.name).entries())


def sweep(prefix: str) -> None:
    """Remove all clusters whose names begin with `prefix`, complete or not.

    Raises VicinalError if one cannot be removed, after removing the others.
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
