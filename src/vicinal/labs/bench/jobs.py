"""Jobs of the measuring programs, on two isolated nodes, one at a time, with pinned ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.labs.bench.metric import FACTS, Metric, Trial, read_trial
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.programs import first_words, mpi_program
from vicinal.launch.cores import usable_cpus
from vicinal.launch.guest_job import run_in_guests
from vicinal.launch.running import launch
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.traffic import pair_traffic

_TIMEOUT_SECONDS = 300.0  # a hang guard: the longest job takes some ten seconds


_NOT_WHAT_IT_SAYS = "report this: the figures would not be what they are called"


class Runner(Protocol):
    """Runs jobs on the nodes of a scenario."""

    command: str
    """The command with which a user runs the same job by hand."""
    pins: bool
    """Whether each rank has a core of its own."""

    def run(self, job: Job) -> CompletedJob:
        """Run a job to its end. Raises VicinalError if the job cannot be started."""


class NodesRunner:
    """Isolated nodes on this host."""

    command = "vicinal run"
    pins = True

    def __init__(self, cluster: EphemeralCluster) -> None:
        self._cluster = cluster

    def run(self, job: Job) -> CompletedJob:
        return launch(job, self._cluster, timeout=_TIMEOUT_SECONDS)


class GuestsRunner:
    """Two guests. If no pair is running, the first job starts one."""

    command = "vicinal guests run"
    pins = False

    def __init__(self, pair: GuestPair | None = None) -> None:
        self._pair = pair

    def run(self, job: Job) -> CompletedJob:
        if self._pair is None:
            pair = GuestPair()
            pair.open()
            self._pair = pair
        return run_in_guests(job, self._pair, timeout=_TIMEOUT_SECONDS)

    @property
    def notes(self) -> list[str]:
        """What readers of the figures must know about the guests."""
        if self._pair is None:
            return []
        return [f"guests by {self._pair.choice.accelerator.description}"]

    def close(self) -> None:
        """End the guests. A second call does nothing."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()


def choose_cpus() -> list[int]:
    """Two CPUs for two pinned ranks, of different cores if possible.

    Raises VicinalError if this process may use only one CPU.
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
    """Starts of the program, the unit of replication."""
    repetitions: int
    """Repetitions of each message size in one trial."""
    seconds: float
    """Approximate duration of one repetition."""


def measure_on(
    runner: Runner, scenario: Scenario, wanted: Mapping[Metric, Sequence[int]], amount: Amount
) -> dict[Metric, Trial]:
    """Run one trial: one start of the program that measures all wanted metrics and sizes.

    Raises VicinalError if the program fails, if the ranks ran on other nodes, or if their messages
    used another transport than the scenario says.
    """
    (program,) = {FACTS[metric].program for metric in wanted}
    sizes = sorted({size for each in wanted.values() for size in each})
    arguments = [*scenario.arguments, "--sizes", ",".join(map(str, sizes))]
    arguments += ["--repetitions", str(amount.repetitions), "--seconds", str(amount.seconds)]
    done = run_on(runner, scenario, program, arguments, scenario.ranks)
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


def run_on(
    runner: Runner, scenario: Scenario, program: str, arguments: Sequence[str], ranks: int
) -> CompletedJob:
    """Run one of the programs to its end. Raises VicinalError if it fails."""
    job = Job(
        program=[str(mpi_program(scenario.mpi, program)), *arguments],
        ranks=ranks,
        mpi=scenario.mpi,
        path=scenario.path,
        cma=scenario.cma,
        pin=runner.pins,
        heap=scenario.heap,
        hosts=scenario.hosts,
        environment=dict(scenario.variables),
        label=f"bench {program}",
    )
    done = runner.run(job)
    if done.returncode != 0:
        said = first_words(f"{done.stderr}\n{done.stdout}") or "it wrote nothing"
        raise VicinalError(
            f"{scenario.title}: {program} failed with status {done.returncode} ({said})",
            f"run it by hand: {runner.command} --mpi {scenario.mpi} "
            f"--path {scenario.path} -n {ranks} {job.program[0]}",
        )
    return done


def _check_regions(scenario: Scenario, program: str, done: CompletedJob) -> None:
    """Check that messages used a region, or none if every rank has a host of its own."""
    apart = scenario.hosts == scenario.ranks
    for region in done.regions:
        if any(pair.sender != pair.receiver for pair in pair_traffic(region)) == apart:
            raise VicinalError(
                f"{scenario.title}: {program} ran, but "
                f"{'something' if apart else 'nothing'} went through the region",
                _NOT_WHAT_IT_SAYS,
            )


class Stage:
    """Isolated nodes and two cores, the same for all compared sides."""

    def __init__(self, nodes: int = 2) -> None:
        self.cpus = choose_cpus()
        """The CPUs that ranks 0 and 1 are pinned to."""
        self.cluster = EphemeralCluster(nodes=nodes)
        """The nodes, also for programs that no launcher starts."""
        self._single: EphemeralCluster | None = None
        self._guests = GuestsRunner()

    def __enter__(self) -> Self:
        self.cluster.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()
        if self._single is not None:
            self._single.close()
        self._guests.close()

    @property
    def limitations(self) -> list[str]:
        """Features that the nodes lacked."""
        return self.cluster.limitations

    def measure(
        self, scenario: Scenario, wanted: Mapping[Metric, Sequence[int]], amount: Amount
    ) -> dict[Metric, Trial]:
        """One trial on the nodes of a scenario; see measure_on()."""
        return measure_on(self._runner(scenario), scenario, wanted, amount)

    def run(
        self, scenario: Scenario, program: str, arguments: Sequence[str], ranks: int
    ) -> CompletedJob:
        """Run one of the programs on the nodes of a scenario; see run_on()."""
        return run_on(self._runner(scenario), scenario, program, arguments, ranks)

    def notes(self, scenario: Scenario) -> list[str]:
        """What readers of its figures must know about the nodes of its ranks."""
        return self._guests.notes if scenario.guests else []

    def _runner(self, scenario: Scenario) -> Runner:
        if scenario.guests:
            return self._guests
        if not scenario.one_node:
            return NodesRunner(self.cluster)
        if self._single is None:
            self._single = EphemeralCluster(nodes=1)
            self._single.open()
        return NodesRunner(self._single)
