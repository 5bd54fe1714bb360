"""Runs a study to its end, or as far as possible; all that was measured is stored."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.owners import owning, take_away_left_behind
from vicinal.cluster.ownership import Owner
from vicinal.labs.study.environments.clusters import StudyClusters, sweep
from vicinal.labs.study.environments.opened import OpenEnvironment
from vicinal.labs.study.file.model import Environment, Study
from vicinal.labs.study.result.layout import Trial
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.running.estimates import Estimates, ended
from vicinal.labs.study.running.plan import Plan, Planned
from vicinal.labs.study.running.ready import check_ready, left_out
from vicinal.labs.study.running.record import Record
from vicinal.labs.study.running.trial import Limits, Tried, expected_seconds, run_trial
from vicinal.labs.study.running.view import Shown, View
from vicinal.labs.study.workloads.driver import Driver, Tools


@dataclass
class Outcome:
    """The outcome of a run."""

    folder: Path
    trials: int = 0
    """Trials with values, including trials of earlier runs."""
    failures: list[str] = field(default_factory=list)
    """Failed trials of this run, as phrases."""
    given_up: list[str] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)
    """What this machine could not provide, and why."""


def run_study(
    study: Study,
    folder: Path,
    tools: Tools,
    *,
    resume: bool,
    view: View,
    seed: int | None = None,
    asked: Mapping[str, Any] | None = None,
    drivers: Mapping[str, Driver] | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """Run a study that was adapted to this machine. Each trial is stored in `folder` as it ends.

    Raises VicinalError if the study cannot begin, or if a trial cannot be stored, for example on a
    full disk. After any end, the study's clusters are removed, and `resume` continues. The manifest
    stores `asked`: how the study was derived from its file.
    """
    if drivers is None:
        from vicinal.labs.study.workloads import drivers as all_drivers

        drivers = all_drivers()
    lacking = check_ready(study, tools, drivers)
    if len(left_out(study, lacking)) == len(study.environments) * len(study.workloads):
        reasons = "; ".join(f"{name}: {why}" for name, why in lacking.items())
        raise VicinalError(
            f"nothing of the study {study.name} can be measured here ({reasons})",
            "install what is missing, or choose another study: vicinal study list",
        )
    study = replace(study, unavailable=lacking)
    record = (Record.resume if resume else Record.begin)(folder, study, seed)
    with record.writer:
        if asked is not None:
            record.amend(asked=dict(asked))
        run = _Run(study, record, tools, drivers, limits or Limits(), view)
        with owning(_owner(study, record, asked or {})):
            run.whole()
        return run.outcome


def _owner(study: Study, record: Record, asked: Mapping[str, Any]) -> Owner:
    """The owner of the clusters of a run."""
    named, folder = asked.get("study") or study.name, record.writer.folder.absolute()
    return Owner(
        name=record.clusters,
        what=f"the study {study.name}",
        again=shlex.join(["vicinal", "study", "run", named, "--resume", "--output", str(folder)]),
    )


class _Run:
    """One run, from its first cluster to its last."""

    def __init__(
        self,
        study: Study,
        record: Record,
        tools: Tools,
        drivers: Mapping[str, Driver],
        limits: Limits,
        view: View,
    ) -> None:
        self._study = study
        self._record = record
        self._tools = tools
        self._drivers = drivers
        self._limits = limits
        self._view = view
        self._lacking = dict(study.unavailable)
        self._opened: dict[str, OpenEnvironment] = {}
        good = [each for each in record.trials if each.failure is None]
        self._done = {(e.trial.block, e.trial.environment, e.trial.workload) for e in good}
        self._took: dict[tuple[str, str], list[float]] = {}
        self._estimates = Estimates(study)
        for each in good:
            key = each.trial.environment, each.trial.workload
            self._took.setdefault(key, []).append(each.trial.seconds)
            self._estimate(each.trial, record.series(each))
        self._failed_in_row: Counter[tuple[str, str]] = Counter()
        self._given_up: set[tuple[str, str]] = set()
        self.outcome = Outcome(record.writer.folder, trials=len(good), lacking=self._lacking)

    def whole(self) -> None:
        """Open the environments, and run block after block."""
        for name, why in self._lacking.items():
            self._view.warn(f"left out: {name}: {why}")
        for note in self._record.notes:
            self._view.warn(f"changed since the study was begun: {note}")
        sweep(self._record.clusters)  # clusters of a killed run of this record
        take_away_left_behind(self._view.say, self._view.warn)  # by other killed runs
        number, ending = 1, None
        while not self._left(number):
            ending = ended(self._study.design, self._estimates, number)
            if ending is not None:
                return  # it was complete before
            number += 1
        with self._clusters() as clusters:
            while ending is None:
                for planned in self._left(number):
                    self._try(planned, clusters)
                ending = ended(self._study.design, self._estimates, number)
                number += 1
        self._record.amend(ending=ending.to_dict())

    def _left(self, number: int) -> list[Planned]:
        """The launches of a block that are still to come."""
        return [
            each
            for each in self._plan.block(number)
            if each.key not in self._done and (each.named, each.workload) not in self._given_up
        ]

    @property
    def _plan(self) -> Plan:
        return Plan(self._study, self._record.seed, left_out(self._study, self._lacking))

    @contextmanager
    def _clusters(self) -> Iterator[StudyClusters]:
        """The clusters of all available environments; nothing of them is left at the end."""
        there = [each for each in self._study.environments if each.name not in self._lacking]
        clusters = StudyClusters(self._record.clusters, there)
        try:
            self._open(clusters, there)
            yield clusters
        except BaseException:
            try:
                clusters.close()
            except VicinalError as error:  # not the reason why the run ended
                self._view.warn(f"not all nodes could be removed: {error}")
            raise
        clusters.close()

    def _open(self, clusters: StudyClusters, environments: Sequence[Environment]) -> None:
        for environment in environments:
            try:
                clusters.open(environment.name, self._view.say)
                opened = OpenEnvironment(environment, clusters.name_of(environment.name))
            except VicinalError as error:
                self._lacking[environment.name] = str(error)
                self._view.warn(f"left out: {environment.name}: {error}")
            else:
                self._opened[environment.name] = opened
        if not self._opened:
            name, why = next(iter(self._lacking.items()))
            raise VicinalError(
                f"no environment of {self._study.name} could be created ({name}: {why})",
                "fix the cause, and resume with --resume",
            )
        self._record.manifest["study"]["unavailable"] = dict(self._lacking)
        facts = {
            name: {**opened.facts(), "same_nodes": clusters.sharing(name)}
            for name, opened in self._opened.items()
        }
        self._record.amend(environments=facts)

    def _estimate(self, trial: Trial, series: Iterable[Series]) -> None:
        workload = self._study.workload(trial.workload)
        self._estimates.add(workload, trial.environment, trial.block, series, trial.figures)

    def _try(self, planned: Planned, clusters: StudyClusters) -> None:
        cell = planned.named, planned.workload
        if cell in self._given_up:
            return
        workload = self._study.workload(planned.workload)
        environment = self._opened[planned.environment]
        self._view.show(self._shown(planned))
        tried = run_trial(
            planned,
            workload,
            self._drivers[workload.driver],
            environment,
            self._tools,
            self._limits.seconds(workload, environment.patience),
        )
        self._done.add(planned.key)
        if tried.measured is not None:
            self._record.writer.add(tried.trial, tried.measured.series)
            self._took.setdefault(cell, []).append(tried.trial.seconds)
            self._estimate(tried.trial, tried.measured.series)
            self._failed_in_row[cell] = 0
            self.outcome.trials += 1
            return
        ended = clusters.ended(planned.environment)
        if ended:
            self._check_ours(planned.environment, clusters)
            gone = f"{tried.failure}; {', '.join(ended)} did not run any more"
            tried = replace(tried, failure=gone)
        self._keep_failure(tried)
        self._failed_in_row[cell] += 1
        if self._failed_in_row[cell] == self._limits.failures:
            self._given_up.add(cell)
            words = f"{planned.workload} in {planned.named}"
            self.outcome.given_up.append(words)
            self._view.warn(f"given up after {self._limits.failures} failures in a row: {words}")
        if not ended:
            return
        try:
            clusters.repair(planned.environment, self._view.say)
        except VicinalError as error:
            self._view.warn(f"the nodes of {planned.environment} cannot be repaired: {error}")
            self.outcome.given_up.append(planned.environment)
            self._given_up |= {
                (name, each.name)
                for each in self._study.workloads
                for name in (planned.environment, planned.named)
            }

    def _check_ours(self, environment: str, clusters: StudyClusters) -> None:
        """Raise VicinalError if another command removed nodes, because then no trial of this run
        failed.

        The launch is not stored, so that --resume repeats it.
        """
        if clusters.taken_away(environment):
            raise VicinalError(
                f"another command removed {clusters.name_of(environment)}, the nodes of "
                f"{environment}, while the study ran",
                "keep the cluster until the study ends, and resume with --resume",
            )

    def _keep_failure(self, tried: Tried) -> None:
        outputs = {} if tried.launched is None else tried.launched.outputs
        stored = self._record.writer.add_failure(tried.trial, tried.failure, outputs)
        words = f"{tried.trial.workload} in {tried.trial.environment}: {tried.failure}"
        self.outcome.failures.append(words)
        kept = f" (see {', '.join(stored.outputs)} in outputs/)" if stored.outputs else ""
        self._view.warn(f"failed: {words}{kept}")

    def _shown(self, planned: Planned) -> Shown:
        blocks = max(planned.block, self._study.design.trials)
        left = [each for number in range(planned.block, blocks + 1) for each in self._left(number)]
        return Shown(
            now=f"{planned.workload} in {planned.named}",
            block=planned.block,
            blocks=blocks,
            trials=self.outcome.trials,
            planned=self.outcome.trials + len(left),
            seconds_left=sum(map(self._expected, left)),
            failures=len(self.outcome.failures),
            estimates=self._estimates.rows(),
        )

    def _expected(self, planned: Planned) -> float:
        took = self._took.get((planned.named, planned.workload))
        if took:
            return sum(took) / len(took)
        return expected_seconds(self._study.workload(planned.workload))
