"""The demonstrations: both MPI libraries on every path, on nodes of this host or between guests."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from vicinal.base.progress import show_steps
from vicinal.base.sizes import KIB, MIB
from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB
from vicinal.labs.bench.jobs import Amount, GuestsRunner, Stage, measure_on
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS, Metric, Trial
from vicinal.labs.bench.report import DEMO_LEGEND, demo_tables, notes
from vicinal.labs.bench.result import result_head, series_of, write_result
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.programs import mpi_program
from vicinal.launch.guest_job import check_guests_have
from vicinal.mpi.environment import MessagePath, Mpi, provider_directory
from vicinal.mpi.libraries import STANDARD

PLOT_SIZES = [1 << power for power in range(23)]
TABLE_SIZES = [8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
GUEST_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
_GUEST_WINDOW = 16
"""Messages in flight. With more, emulated processors need seconds for large messages."""

DEFAULT_AMOUNT = Amount(trials=3, repetitions=1, seconds=0.02)


@dataclass(frozen=True)
class DemoPlan:
    """What a demonstration measures on nodes of this host, and how much."""

    mpis: Sequence[Mpi] = STANDARD
    sizes: Sequence[int] = tuple(PLOT_SIZES)
    amount: Amount = DEFAULT_AMOUNT

    @property
    def scenarios(self) -> list[Scenario]:
        """Every MPI library on every path."""
        return [
            scenario
            for mpi in self.mpis
            for scenario in (
                Scenario(mpi, MessagePath.NETWORK),
                Scenario(mpi, MessagePath.REGION),
                Scenario(mpi, MessagePath.SHARED_MEMORY, cma=True),
                Scenario(mpi, MessagePath.SHARED_MEMORY, cma=False),
            )
        ]

    @property
    def runs(self) -> list[tuple[Scenario, Metric]]:
        """The runs of one trial."""
        return [(scenario, metric) for scenario in self.scenarios for metric in DEMO_METRICS]


@dataclass(frozen=True)
class GuestDemoPlan(DemoPlan):
    """What a demonstration measures between two guests, and how much."""

    sizes: Sequence[int] = GUEST_SIZES
    amount: Amount = Amount(trials=1, repetitions=3, seconds=0.05)  # noqa: RUF009 - frozen too

    @property
    def scenarios(self) -> list[Scenario]:
        """Every MPI library on the paths from guest to guest."""
        return [
            Scenario(mpi, path, arguments=("--window", str(_GUEST_WINDOW)))
            for mpi in self.mpis
            for path in (MessagePath.NETWORK, MessagePath.REGION)
        ]


def run_demo(plan: DemoPlan) -> dict[str, Any]:
    """Measure all of a plan on isolated nodes of this host, and return the result."""
    with show_steps(len(plan.runs) * plan.amount.trials) as steps:
        steps.begin("starting two isolated nodes")
        with Stage() as stage:
            head = result_head(
                plan.mpis,
                cpus=stage.cpus,
                amount=plan.amount,
                limitations=stage.limitations,
            )

            def measure(scenario: Scenario, metric: Metric) -> Trial:
                trial = stage.measure(scenario, {metric: plan.sizes}, plan.amount)[metric]
                steps.finish()
                return trial

            return head | measure_series(plan, measure, steps.begin)


def check_guest_demo(plan: GuestDemoPlan) -> None:
    """Check that a plan can be measured, and compile its programs for the image.

    Raises VicinalError if the guests lack something that the plan needs.
    """
    provider_directory()
    for scenario, metric in plan.runs:
        check_guests_have(scenario.mpi)
        mpi_program(scenario.mpi, FACTS[metric].program)


def run_guest_demo(
    plan: GuestDemoPlan, pair: GuestPair, step: Callable[[str], None]
) -> dict[str, Any]:
    """Measure all of a plan in running guests, and return the result.

    `step` is called with the name of each job before it begins. Raises VicinalError if a job fails,
    or if its messages used the wrong transport.
    """
    head = result_head(
        plan.mpis,
        cpus=sorted(os.sched_getaffinity(0)),
        amount=plan.amount,
        limitations=[],
    )
    runner = GuestsRunner(pair)

    def measure(scenario: Scenario, metric: Metric) -> Trial:
        return measure_on(runner, scenario, {metric: plan.sizes}, plan.amount)[metric]

    series = measure_series(plan, measure, step)
    return {
        **head,
        **series,
        "guests": {
            "number": len(pair.guests),
            "accelerator": pair.choice.accelerator.value,
            "accelerator_note": pair.choice.accelerator.description,
            "accelerator_reason": pair.choice.reason,
            "qemu": pair.qemu.version,
            "kernel": pair.image.kernel_version,
            "processors": 1,
            "memory_mib": MEMORY_MIB,
        },
    }


def measure_series(
    plan: DemoPlan, measure: Callable[[Scenario, Metric], Trial], begin: Callable[[str], None]
) -> dict[str, Any]:
    """Measure a plan in rounds of one trial of each run. Returns the result without its head.

    `measure` runs one trial. `begin` is called with the name of each trial before it starts.
    """
    trials: dict[tuple[Scenario, Metric], list[Trial]] = {run: [] for run in plan.runs}
    for number in range(plan.amount.trials):
        for (scenario, metric), results in trials.items():
            begin(f"{scenario.title}: {metric} ({number + 1} of {plan.amount.trials})")
            results.append(measure(scenario, metric))
    return {
        "format": "vicinal-demo-1",
        "series": [
            series_of(scenario, metric, results, plan.sizes)
            for (scenario, metric), results in trials.items()
        ],
    }


def write_demo(result: dict[str, Any], directory: Path, caption: str | None = None) -> list[Path]:
    """Write plot.png, plot.svg and result.json, and return their paths. See plot_demo().

    Without matplotlib, there are no figures.
    """
    figures = [directory / "plot.png", directory / "plot.svg"]
    try:
        from vicinal.labs.bench.plot import plot_demo
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise  # a missing module of Vicinal's own
        figures = []
    else:
        plot_demo(result, figures, caption)
    path = directory / "result.json"
    write_result(result, "demo", path)
    return [*figures, path]


def write_guest_demo(result: dict[str, Any], directory: Path) -> list[Path]:
    """Write plot.png, plot.svg and result.json, and return their paths."""
    return write_demo(result, directory, _guest_caption(result))


def _guest_caption(result: dict[str, Any]) -> str:
    guests = result["guests"]
    return (
        f"two QEMU {guests['qemu'].split()[0]} guests on {result['host']['cpu']}; "
        f"{guests['accelerator_note']}; {result['created'][:10]}"
    )


def show_demo(result: dict[str, Any], plan: DemoPlan, directory: Path, console: Console) -> None:
    """Print the tables, write the figures and the result, and print their paths."""
    measured = set(plan.sizes)
    sizes = [size for size in TABLE_SIZES if size in measured] or sorted(measured)
    for mpi in plan.mpis:
        console.print(demo_tables(result, mpi, sizes))
        console.print()
    legend = DEMO_LEGEND.format(trials=result["conditions"]["trials"])
    console.print(legend, style="dim", highlight=False)
    written = write_demo(result, directory)
    for note in notes(result):
        console.print(note, markup=False, highlight=False)
    if len(written) == 1:
        missing = "No figures: they need matplotlib (pip install 'vicinal[study]')."
        console.print(missing, markup=False)
    for path in written:
        console.print(f"Written: {path}", markup=False, soft_wrap=True, highlight=False)
