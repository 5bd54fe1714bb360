"""Measures one trial of a search: sets knobs, checks links, launches the workload, reads its
output.

The studies' analysis forms a launch's values. If a program prints only a mean, the trial has no
P50.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from vicinal.base.errors import VicinalError
from vicinal.labs.study.analysis.values import (
    described,
    figure_values,
    parts_of,
    samples_of,
    statistics_of,
)
from vicinal.labs.study.file.model import Quantity, Statistic, Study, Workload
from vicinal.labs.study.result.layout import TOTAL_TIME
from vicinal.labs.study.running.plan import Planned
from vicinal.labs.study.running.trial import Limits, Tried, run_trial
from vicinal.labs.study.workloads.driver import Driver, Tools
from vicinal.labs.study.workloads.driver import Measured as Printed
from vicinal.labs.tune.evidence import add_work, read_counters
from vicinal.labs.tune.measuring.environment import RunningEnvironment
from vicinal.labs.tune.measuring.folder import SearchFolder
from vicinal.labs.tune.measuring.knobs import SearchKnobs
from vicinal.labs.tune.measuring.links import LinkDroppedError, LinkWatch
from vicinal.labs.tune.measuring.phases import ENVIRONMENT
from vicinal.labs.tune.measuring.progress import Progress
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Setting
from vicinal.labs.tune.search.trial import Measured, SearchEndsError
from vicinal.labs.tune.settings.applier import Work

_PERCENTILES = {Statistic.MEDIAN: Objective.P50, Statistic.P99: Objective.P99}


@dataclass(frozen=True)
class Bench:
    """The parts that measure a trial; a search calls `measure`."""

    study: Study
    objectives: Mapping[str, tuple[Objective, ...]]
    """By phase."""
    knobs: SearchKnobs
    running: RunningEnvironment
    work: Work | None
    """None if no knob is the host's."""
    links: LinkWatch
    drivers: Mapping[str, Driver]
    tools: Tools
    limits: Limits
    folder: SearchFolder
    progress: Progress

    def measure(self, setting: Setting, phase: str) -> Measured:
        """Run one trial; if a link dropped in between, run it a second time.

        Raises VicinalError with the launch's error if the trial failed. Raises SearchEndsError if
        an interface no longer exists, or another command removed the nodes.
        """
        self.progress.begin(setting, phase)
        try:
            return self._measure(setting, phase)
        except LinkDroppedError as error:
            self.progress.say(f"{error.message}; the trial runs again")
            return self._measure(setting, phase)

    def _measure(self, setting: Setting, phase: str) -> Measured:
        self.links.check_there()
        if self.work is not None:
            self.work.apply(self.knobs.of_host(setting))
        self.running.check_whole()
        links = self.links.settle()
        workload = self.study.workload(phase)
        environment = self.running.opened
        environment.environment = self.knobs.with_variables(setting)
        before = read_counters()
        tried = run_trial(
            Planned(self.progress.block, phase, ENVIRONMENT),
            workload,
            self.drivers[workload.driver],
            environment,
            self.tools,
            self.limits.seconds(workload, environment.patience),
        )
        counted = read_counters().since(before)
        self.links.check(links)
        if tried.measured is None:
            raise self._failed(tried)
        values = values_of(workload, tried.measured)
        if counted.busy_seconds is not None:
            values[Objective.CPU.value] = counted.busy_seconds
        lacking = [each for each in self.objectives[phase] if each.value not in values]
        if lacking:
            raise VicinalError(
                f"{phase} gave no {lacking[0]}, but {', '.join(values) or 'nothing'}",
                "choose objectives that the workload gives, or another operation",
            )
        work = work_of(tried.measured)
        return Measured(values, counted.to_dict() if work is None else add_work(counted, work))

    def _failed(self, tried: Tried) -> VicinalError:
        """The error of a failed trial; keeps its output, and creates ended nodes again."""
        outputs = {} if tried.launched is None else tried.launched.outputs
        kept = self.folder.keep_outputs(self.progress.done, outputs)
        why = tried.failure
        try:
            if ended := self.running.mend():
                why = f"{why}; {', '.join(ended)} had ended"
        except SearchEndsError:
            raise
        # the nodes failed with this setting; the next trial tries again
        except VicinalError as error:
            why = f"{why}; its nodes ended, and could not be created again ({error.message})"
        self.progress.say(f"the trial failed: {why}")
        return VicinalError(why, f"see {', '.join(kept)}" if kept else "check the workload")


def values_of(workload: Workload, measured: Printed) -> dict[str, float]:
    """Values by objective, in the objectives' units, as far as the program gives them.

    Processor time is not among them, because programs do not print it.
    """
    found: dict[str, float] = {}
    for objective, value in _of_samples(workload, measured):
        found.setdefault(objective.value, value)
    for objective, value in _of_figures(workload, measured):
        found.setdefault(objective.value, value)
    return found


def work_of(measured: Printed) -> float | None:
    """The launch's work in messages or bytes; None if the output does not show it."""
    if measured.work is not None:
        return measured.work
    messages = sum(each.messages * len(each.nanoseconds) for each in measured.series)
    return float(messages) or None


def _of_samples(workload: Workload, measured: Printed) -> Iterator[tuple[Objective, float]]:
    if not measured.series:
        return
    with suppress(VicinalError):  # the samples of the ranks do not belong together
        samples = samples_of(measured.series, replace(workload, quantity=Quantity.LATENCY))
        statistics = statistics_of(described(samples), _PERCENTILES)
        yield from ((_PERCENTILES[each], value) for each, value in statistics.items())
    with suppress(VicinalError):
        if all(each.size > 0 for each in measured.series):
            rates = samples_of(measured.series, replace(workload, quantity=Quantity.BANDWIDTH))
            yield Objective.BANDWIDTH, rates.mean


def _of_figures(workload: Workload, measured: Printed) -> Iterator[tuple[Objective, float]]:
    figures = list(measured.figures)
    mean = (Statistic.MEAN,)
    times = replace(workload, quantity=Quantity.LATENCY, statistics=mean)
    for statistic, value in figure_values(figures, times, "µs").items():
        if statistic in _PERCENTILES:
            yield _PERCENTILES[statistic], value
    rates = replace(workload, quantity=Quantity.BANDWIDTH, statistics=mean)
    rate = figure_values(figures, rates, "MB/s").get(Statistic.MEAN)
    if rate is not None:
        yield Objective.BANDWIDTH, rate
    whole = parts_of(figures).get(TOTAL_TIME)
    if whole is not None:
        yield Objective.APPLICATION, whole
