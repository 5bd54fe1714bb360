"""The demonstrations: both MPI libraries on every path, on nodes of this host or between guests.

Plots show latency and bandwidth against message size, with a line for each path.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.console import Console

from vicinal.base.progress import show_steps
from vicinal.base.sizes import KIB, MIB, show_exact_size
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB
from vicinal.cluster.vm.qemu.pair import GuestPair
from vicinal.labs.bench.jobs import Amount, GuestsRunner, Stage, measure_on
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS, Metric, Trial
from vicinal.labs.bench.report import DEMO_LEGEND, demo_tables, notes
from vicinal.labs.bench.result import result_head, series_of, write_result
from vicinal.labs.bench.sides import MPI_TITLES, Scenario
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
# Colours that people with any colour vision tell apart (Okabe and Ito), and a marker each.
_STYLES: dict[tuple[str, bool | None], dict[str, Any]] = {
    ("network", None): {"color": "#D55E00", "marker": "s", "label": "network (TCP), two nodes"},
    ("region", None): {
        "color": "#0072B2",
        "marker": "o",
        "label": "region (Vicinal), two nodes",
        "linewidth": 2.4,
        "zorder": 5,
    },
    ("shared-memory", True): {
        "color": "#009E73",
        "marker": "^",
        "label": "own shared memory with CMA, one node",
        "linestyle": "--",
    },
    ("shared-memory", False): {
        "color": "#666666",
        "marker": "v",
        "label": "own shared memory without CMA, one node",
        "linestyle": ":",
    },
}


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
    """Write plot.png, plot.svg and result.json, and return their paths. See plot_demo()."""
    figures = [directory / "plot.png", directory / "plot.svg"]
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
    for path in written:
        console.print(f"Written: {path}", markup=False, soft_wrap=True, highlight=False)


def plot_demo(result: Mapping[str, Any], paths: Iterable[Path], caption: str | None = None) -> None:
    """Draw a demo's result into files. The suffix of each file is its format (png, svg).

    `caption` says under which conditions it was measured. The default comes from the result.
    """
    series = result["series"]
    mpis = [mpi for mpi in Mpi if any(line["scenario"]["mpi"] == mpi for line in series)]
    metrics = [metric for metric in Metric if any(line["metric"] == metric for line in series)]
    figure = Figure(figsize=(5.6 * len(mpis), 4.0 * len(metrics) + 0.9), layout="constrained")
    grid = figure.subplots(len(metrics), len(mpis), sharex="col", sharey="row", squeeze=False)
    handles: dict[str, Line2D] = {}
    for row, metric in enumerate(metrics):
        for column, mpi in enumerate(mpis):
            axes = grid[row][column]
            chosen = [
                line
                for line in series
                if line["metric"] == metric and line["scenario"]["mpi"] == mpi
            ]
            _draw(axes, chosen, handles)
            facts = FACTS[metric]
            axes.set_title(f"{MPI_TITLES[mpi]}: {facts.title.lower()}")
            if column == 0:
                better = "lower" if facts.lower_is_better else "higher"
                axes.set_ylabel(f"{facts.title} [{facts.unit}], {better} is better")
            if row == len(metrics) - 1:
                axes.set_xlabel("Message size")
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=2)
    figure.supxlabel(caption or _caption(result), fontsize=8, color="#444444")
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Text stays text in SVG, and the same result gives the same file.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vicinal"}):
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)


def _draw(axes: Axes, series: Sequence[Mapping[str, Any]], handles: dict[str, Line2D]) -> None:
    """Draw the lines of one panel, with the interval of each median as a shade."""
    for line in series:
        scenario = line["scenario"]
        style = _STYLES[scenario["path"], scenario["cma"]]
        sizes = [point["size"] for point in line["points"]]
        medians = [point["median"] for point in line["points"]]
        (handle,) = axes.plot(
            sizes, [median["value"] for median in medians], **{"markersize": 4, **style}
        )
        axes.fill_between(
            sizes,
            [median["low"] for median in medians],
            [median["high"] for median in medians],
            color=style["color"],
            alpha=0.15,
            linewidth=0,
        )
        handles.setdefault(style["label"], handle)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: show_exact_size(int(size))))
    axes.tick_params(axis="x", labelrotation=45)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", alpha=0.35)
    axes.grid(which="minor", axis="y", alpha=0.12)


def _caption(result: Mapping[str, Any]) -> str:
    """The conditions under which the result was measured."""
    host, conditions = result["host"], result["conditions"]
    virtual = ", a virtual machine" if host["virtual"] else ""
    cpus = " and ".join(map(str, conditions["cpus"]))
    return (
        f"{host['cpu']}{virtual}; ranks pinned to CPUs {cpus}; median of "
        f"{conditions['trials']} trials, shade: its interval; {result['created'][:10]}"
    )
