"""Running the measuring programs: on two isolated nodes, one job at a time, ranks pinned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.vm.qemu.pair import GuestPair
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
    """What runs jobs on the nodes of a scenario."""

    command: str
    """The command by which a user does the same by hand."""
    pins: bool
    """Whether each rank gets a core of its own."""

    def run(self, job: Job) -> CompletedJob:
        """Run a job to its end. Raises VicinalError where it cannot be started."""


class NodesRunner:
    """Isolated nodes on this host."""

    command = "vicinal run"
    pins = True

    def __init__(self, cluster: EphemeralCluster) -> None:
        self._cluster = cluster

    def run(self, job: Job) -> CompletedJob:
        return launch(job, self._cluster, timeout=_TIMEOUT_SECONDS)


class GuestsRunner:
    """Two guests. Without a pair that is up, the first job starts one."""

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


def measure_on(
    runner: Runner, scenario: Scenario, wanted: Mapping[Metric, Sequence[int]], amount: Amount
) -> dict[Metric, Trial]:
    """One start of the program that measures all of the wanted metrics and sizes: one trial.

    Raises VicinalError if it fails, or if the ranks or their messages were not where the
    scenario says.
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
    """Did the messages go through a region, or past them where every rank has its own host?"""
    apart = scenario.hosts == scenario.ranks
    for region in done.regions:
        if any(pair.sender != pair.receiver for pair in pair_traffic(region)) == apart:
            raise VicinalError(
                f"{scenario.title}: {program} ran, but "
                f"{'something' if apart else 'nothing'} went through the region",
                _NOT_WHAT_IT_SAYS,
            )


class Stage:
    """Isolated nodes and two cores, the same for everything that is compared."""

    def __init__(self, nodes: int = 2) -> None:
        self.cpus = choose_cpus()
        """The CPUs that ranks 0 and 1 are pinned to."""
        self.cluster = EphemeralCluster(nodes=nodes)
        """The nodes, also for what no launcher starts."""
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
        """What the nodes had to do without."""
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
        """What a reader of its figures has to know about where its ranks ran."""
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
