"""The environment of a search's trials: a cluster, created once for all trials."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from vicinal.base.errors import VicinalError
from vicinal.cluster.owners import owning, take_away_left_behind
from vicinal.cluster.ownership import Owner
from vicinal.labs.study.environments.clusters import StudyClusters, sweep
from vicinal.labs.study.environments.opened import OpenEnvironment
from vicinal.labs.study.file.model import Environment
from vicinal.labs.study.running.view import View
from vicinal.labs.tune.search.trial import SearchEndsError


class RunningEnvironment:
    """The environment with its running cluster."""

    def __init__(self, environment: Environment, clusters: StudyClusters, view: View) -> None:
        self._environment = environment
        self._clusters = clusters
        self._view = view
        self.opened = OpenEnvironment(environment, clusters.name_of(environment.name))
        self._broken = False

    def check_whole(self) -> None:
        """Retry a failed mend(): otherwise a trial's setting would be blamed for the missing nodes.

        Raises SearchEndsError if the nodes still cannot be created.
        """
        if not self._broken:
            return
        try:
            self.mend()
        except SearchEndsError:
            raise
        except VicinalError as error:
            raise SearchEndsError(
                f"the nodes of the search ended, and cannot be created again ({error.message})",
                f"{error.remedy}, and continue with --resume",
            ) from error

    def mend(self) -> list[str]:
        """Create nodes that ended again; returns their names. Raises VicinalError if that fails.

        Raises SearchEndsError if another command removed the nodes: then no setting is to blame.
        """
        ended = self._clusters.ended(self._environment.name)
        if ended and self._clusters.taken_away(self._environment.name):
            raise SearchEndsError(
                f"another command removed {self._clusters.name_of(self._environment.name)}, the "
                "nodes of the search, during the search",
                "do not remove these nodes, and continue with --resume",
            )
        self._broken = bool(ended)
        if ended:
            self._clusters.repair(self._environment.name, self._view.say)
            self.opened = OpenEnvironment(
                self._environment, self._clusters.name_of(self._environment.name)
            )
            self._broken = False
        return ended


@contextmanager
def running_environment(
    environment: Environment, name: str, prefix: str, again: list[str], view: View
) -> Iterator[RunningEnvironment]:
    """Create the environment; at the end it is removed. After a kill, the next command removes it.

    Its clusters' names begin with `prefix`. `again` is the command line that continues the search
    `name`. Raises VicinalError if the environment cannot be created.
    """
    owner = Owner(name=prefix, what=f"the search {name}", again=shlex.join(again))
    with owning(owner):
        sweep(prefix)  # removes clusters of killed runs
        take_away_left_behind(view.say, view.warn)
        clusters = StudyClusters(prefix, [environment])
        try:
            clusters.open(environment.name, view.say)
            yield RunningEnvironment(environment, clusters, view)
        except BaseException:
            try:
                clusters.close()
            except VicinalError as error:  # this error is not the cause of the end
                view.warn(f"not all nodes could be removed: {error}")
            raise
        clusters.close()
