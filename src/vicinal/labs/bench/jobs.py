"""Running the measuring programs: on two isolated nodes, one job at a time, ranks pinned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.netns.cluster import NativeCluster
from vicinal.cluster.vm.qemu.pair import GuestPair
from vicinal.labs.bench.metric import FACTS, Metric
from vicinal.labs.bench.output import Trial, read_trial
from vicinal.labs.bench.scenario import Scenario
from vicinal.labs.programs import mpi_program
from vicinal.launch.cores import usable_cpus
from vicinal.launch.guest_job import run_in_guests
from vicinal.launch.running import launch
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.traffic import pair_traffic

_TIMEOUT_SECONDS = 300.0  # a hang guard: the longest job takes some ten seconds


_NOT_WHAT_IT_SAYS = "report this: the figures would not be what they are called"


class GuestStage:
    """The guests, one rank in each."""

    def __init__(self) -> None:
        self._pair: GuestPair | None = None

    def run(self, job: Job, timeout: float) -> CompletedJob:
        """Run a job to its end; see run_in_guests(). The guests are started if need be."""
        if self._pair is None:
            pair = GuestPair()
            pair.open()
            self._pair = pair
        return run_in_guests(job, self._pair, timeout=timeout)

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures has to know about the guests that ran."""
        if self._pair is None:
            return []
        return [f"guests by {self._pair.choice.accelerator.description}"]

    def close(self) -> None:
        """End the guests; may be called again."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()


def choose_cpus() -> list[int]:
    """Two CPUs to pin two ranks to, of different cores where there are two.

    Raises VicinalError where this process may use only one CPU.
    """
    cpus = usable_cpus()[:2]
    if len(cpus) < 2:
        raise VicinalError(
            "only one core is usable here, and two ranks that poll need one each",
            "allow this process two cores (taskset, cpuset), or measure on another machine",
        )
    return cpus


@dataclass(frozen=True)
class Amount:
    """How much to measure."""

    trials: int
    """Starts of the program, which is what is replicated."""
    repetitions: int
    """Of each message size in one trial."""
    seconds: float
    """That one repetition takes, about."""


class Stage:
    """Isolated nodes and two cores, the same for everything that is compared."""

    def __init__(self, nodes: int = 2) -> None:
        self.cpus = choose_cpus()
        """The CPUs that ranks 0 and 1 are pinned to."""
        self._cluster = NativeCluster(nodes=nodes)
        self._single: NativeCluster | None = None
        self._guests = GuestStage()

    def __enter__(self) -> Self:
        self._cluster.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        if self._single is not None:
            self._single.close()
        self._guests.close()

    @property
    def limitations(self) -> list[str]:
        """What the nodes had to do without."""
        return self._cluster.limitations

    def measure(
        self, scenario: Scenario, metric: Metric, sizes: Sequence[int], amount: Amount
    ) -> Trial:
        """One start of the metric's program: one trial. See measure_all()."""
        return self.measure_all(scenario, {metric: sizes}, amount)[metric]

    def measure_all(
        self, scenario: Scenario, wanted: Mapping[Metric, Sequence[int]], amount: Amount
    ) -> dict[Metric, Trial]:
        """One start of the program that measures all of the wanted metrics and sizes.

        Raises VicinalError if it fails, or if the ranks or their messages were not where the
        scenario says.
        """
        (program,) = {FACTS[metric].program for metric in wanted}
        sizes = sorted({size for each in wanted.values() for size in each})
        arguments = [*scenario.arguments, "--sizes", ",".join(map(str, sizes))]
        arguments += ["--repetitions", str(amount.repetitions), "--seconds", str(amount.seconds)]
        done = self.run(scenario, program, arguments, scenario.ranks)
        trials = {metric: read_trial(done.stdout, metric, each) for metric, each in wanted.items()}
        hosts = next(iter(trials.values())).hosts
        if len(set(hosts)) != scenario.nodes:
            raise VicinalError(
                f"{scenario.title}: the ranks ran on {' and '.join(hosts)}, "
                f"not on {scenario.nodes} node(s)",
                _NOT_WHAT_IT_SAYS,
            )
        if scenario.path is MessagePath.REGION:
            _check_regions(scenario, program, done)
        return trials

    @property
    def cluster(self) -> NativeCluster:
        """The nodes, for what no launcher starts."""
        return self._cluster

    def notes(self, scenario: Scenario) -> list[str]:
        """What a reader of its figures has to know about where its ranks ran."""
        return self._guests.notes if scenario.guests else []

    def _cluster_for(self, scenario: Scenario) -> NativeCluster:
        """The nodes that a scenario's ranks are spread over."""
        if not scenario.one_node:
            return self._cluster
        if self._single is None:
            self._single = NativeCluster(nodes=1)
            self._single.open()
        return self._single

    def run(
        self, scenario: Scenario, program: str, arguments: Sequence[str], ranks: int = 2
    ) -> CompletedJob:
        """Run one of the programs to its end. Raises VicinalError if it fails."""
        job = Job(
            program=[str(mpi_program(scenario.mpi, program)), *arguments],
            ranks=ranks,
            mpi=scenario.mpi,
            path=scenario.path,
            cma=scenario.cma,
            pin=not scenario.guests,
            heap=scenario.heap,
            hosts=scenario.hosts,
            environment=dict(scenario.variables),
            label=f"bench {program}",
        )
        if scenario.guests:
            done = self._guests.run(job, _TIMEOUT_SECONDS)
        else:
            done = launch(job, self._cluster_for(scenario), timeout=_TIMEOUT_SECONDS)
        if done.returncode != 0:
            command = "vicinal guests run" if scenario.guests else "vicinal run"
            raise VicinalError(
                f"{scenario.title}: {program} failed with status {done.returncode}"
                f" ({_first_line(done)})",
                f"run it by hand: {command} --mpi {scenario.mpi} "
                f"--path {scenario.path} -n {ranks} {job.program[0]}",
            )
        return done


def _check_regions(scenario: Scenario, program: str, done: CompletedJob) -> None:
    """Did the messages go through a region, or past them where every rank has its own host?"""
    apart = scenario.hosts == scenario.ranks
    for region in done.regions:
        if any(pair.sender != pair.receiver for pair in pair_traffic(region)) == apart:
            raise VicinalError(
                f"{scenario.title}: {program} ran, but "
                f"{'something' if apart else 'nothing'} went through the region",
                _NOT_WHAT_IT_SAYS,
            )


def _first_line(done: CompletedJob) -> str:
    """The first line of a failed job's errors that says something."""
    for line in done.stderr.splitlines() + done.stdout.splitlines():
        if any(letter.isalpha() for letter in line):
            return line.strip()
    return "it wrote nothing"
