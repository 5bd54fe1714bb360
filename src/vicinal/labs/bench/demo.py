"""The demonstration: both MPI libraries on every path, side by side on this machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from vicinal.base.progress import show_steps
from vicinal.base.sizes import KIB, MIB
from vicinal.labs.bench.jobs import Amount, Stage
from vicinal.labs.bench.metric import DEMO_METRICS, Metric, Trial
from vicinal.labs.bench.plot import plot_demo
from vicinal.labs.bench.report import DEMO_LEGEND, demo_tables, notes
from vicinal.labs.bench.result import result_head, series_of, write_result
from vicinal.labs.bench.sides import Scenario
from vicinal.mpi.environment import MessagePath, Mpi
from vicinal.mpi.libraries import STANDARD

PLOT_SIZES = [1 << power for power in range(23)]
TABLE_SIZES = [8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]


DEFAULT_AMOUNT = Amount(trials=3, repetitions=1, seconds=0.02)


@dataclass(frozen=True)
class DemoPlan:
    """What to measure on the nodes of this host, and how much."""

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
        """What one trial consists of."""
        return [(scenario, metric) for scenario in self.scenarios for metric in DEMO_METRICS]


def run_demo(plan: DemoPlan) -> dict[str, Any]:
    """Measure all of a plan on isolated nodes of this host; return the result."""
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


def measure_series(
    plan: DemoPlan, measure: Callable[[Scenario, Metric], Trial], begin: Callable[[str], None]
) -> dict[str, Any]:
    """Measure all of a plan, one trial of everything after the other; return all but the head.

    `measure` runs one trial. `begin` is told of each trial before it starts.
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
    """Write plot.png, plot.svg and result.json; return their paths. See plot_demo()."""
    figures = [directory / "plot.png", directory / "plot.svg"]
    plot_demo(result, figures, caption)
    path = directory / "result.json"
    write_result(result, "demo", path)
    return [*figures, path]


def show_demo(result: dict[str, Any], plan: DemoPlan, directory: Path, console: Console) -> None:
    """Print the tables, write the figures and the result, and say where they are."""
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
    for path in written:
        console.print(f"Written: {path}", markup=False, soft_wrap=True, highlight=False)
