"""The demonstration between guests: a stock MPI over the network, and over the region."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import KIB, MIB, show_exact_size
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB
from vicinal.cluster.vm.qemu.pair import GuestPair
from vicinal.labs.bench.jobs import Amount
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS, Metric
from vicinal.labs.bench.output import Trial, read_trial
from vicinal.labs.bench.plot import plot_demo
from vicinal.labs.bench.report import format_value
from vicinal.labs.bench.result import result_head, series_of, write_result
from vicinal.labs.bench.scenario import MPI_TITLES, Scenario
from vicinal.labs.programs import mpi_program
from vicinal.launch.guest_job import check_guests_have, run_in_guests
from vicinal.mpi.environment import MessagePath, Mpi, provider_directory
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import STANDARD

_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
_WINDOW = 16
"""Messages in flight; emulated processors need seconds for more of the large ones."""
_TIMEOUT_SECONDS = 240.0  # a hang guard: with TCG the longest job takes some twenty seconds


@dataclass(frozen=True)
class GuestDemoPlan:
    """What to measure between two guests, and how much."""

    mpis: Sequence[Mpi] = STANDARD
    sizes: Sequence[int] = _SIZES
    amount: Amount = Amount(trials=1, repetitions=3, seconds=0.05)  # noqa: RUF009 - frozen too

    @property
    def runs(self) -> list[tuple[Scenario, Metric]]:
        """What one trial consists of."""
        return [
            (Scenario(mpi, path), metric)
            for mpi in self.mpis
            for path in (MessagePath.NETWORK, MessagePath.REGION)
            for metric in DEMO_METRICS
        ]


def check_guest_demo(plan: GuestDemoPlan) -> None:
    """See that there is all that a plan needs, and compile its programs for the image.

    Raises VicinalError for what guests do not have.
    """
    provider_directory()
    for scenario, metric in plan.runs:
        check_guests_have(scenario.mpi)
        mpi_program(scenario.mpi, FACTS[metric].program)


def run_guest_demo(
    plan: GuestDemoPlan, pair: GuestPair, step: Callable[[str], None]
) -> dict[str, Any]:
    """Measure all of a plan in guests that are up; return the result.

    `step` is told of each job before it begins. Raises VicinalError if a job fails, or if
    its messages did not go where they should.
    """
    head = result_head(
        plan.mpis,
        cpus=sorted(os.sched_getaffinity(0)),
        amount=plan.amount,
        limitations=[],
    )
    trials: dict[tuple[Scenario, Metric], list[Trial]] = {run: [] for run in plan.runs}
    for number in range(plan.amount.trials):
        for run, results in trials.items():
            scenario, metric = run
            step(f"{scenario.title}: {metric} ({number + 1} of {plan.amount.trials})")
            results.append(_measure(scenario, metric, plan, pair))
    return head | {
        "format": "vicinal-demo-1",
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
        "series": [
            series_of(scenario, metric, results, plan.sizes)
            for (scenario, metric), results in trials.items()
        ],
    }


def write_guest_demo(result: dict[str, Any], directory: Path) -> list[Path]:
    """Write result.json, plot.png and plot.svg; return their paths."""
    figures = [directory / "plot.png", directory / "plot.svg"]
    plot_demo(result, figures, caption=_caption(result))
    write_result(result, "demo", directory / "result.json")
    return [*figures, directory / "result.json"]


def _measure(scenario: Scenario, metric: Metric, plan: GuestDemoPlan, pair: GuestPair) -> Trial:
    """One start of the metric's program, one rank in each guest."""
    arguments = ["--sizes", ",".join(map(str, plan.sizes)), "--window", str(_WINDOW)]
    arguments += ["--repetitions", str(plan.amount.repetitions)]
    arguments += ["--seconds", str(plan.amount.seconds)]
    job = Job(
        program=[str(mpi_program(scenario.mpi, FACTS[metric].program)), *arguments],
        ranks=len(pair.guests),
        mpi=scenario.mpi,
        path=scenario.path,
    )
    done = run_in_guests(job, pair, timeout=_TIMEOUT_SECONDS)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if any(map(str.isalpha, line))]
        raise VicinalError(
            f"{scenario.title}: {metric} failed with status {done.returncode} "
            f"({lines[0].strip() if lines else 'it wrote nothing'})",
            f"run it by hand: vicinal guests run --path {scenario.path} -n 2 {job.program[0]}",
        )
    trial = read_trial(done.stdout, metric, plan.sizes)
    if sorted(trial.hosts) != sorted(guest.name for guest in pair.guests):
        raise VicinalError(
            f"{scenario.title}: the ranks ran on {' and '.join(trial.hosts)}, not one a guest",
            "report this: the figures would not be what they are called",
        )
    if scenario.path is MessagePath.REGION and not (done.region and done.region.connections):
        raise VicinalError(
            f"{scenario.title}: {metric} ran, but nothing went through the region",
            "report this: the figures would not be what they are called",
        )
    return trial


def _caption(result: dict[str, Any]) -> str:
    guests = result["guests"]
    return (
        f"two QEMU {guests['qemu'].split()[0]} guests on {result['machine']['cpu']}; "
        f"{guests['accelerator_note']}; {result['created'][:10]}"
    )


def guest_table(result: Mapping[str, Any]) -> Table:
    """Latency and bandwidth over the network and over the region, for all sizes."""
    guests = result["guests"]
    table = Table(
        title=f"MPI between two virtual machines, one rank in each\n{guests['accelerator_note']}",
        title_justify="left",
        caption=f"latency: half a round trip; bandwidth: one way, 1 MB = 10⁶ bytes\n"
        f"QEMU {guests['qemu'].split()[0]}, guests' Linux {guests['kernel']}, "
        f"network: virtio, region: ivshmem",
        caption_justify="left",
    )
    table.add_column("message\nsize", justify="right", no_wrap=True)
    for metric in DEMO_METRICS:
        unit = FACTS[metric].unit
        table.add_column(f"{metric.value}\nnetwork\n{unit}", justify="right", no_wrap=True)
        table.add_column(f"\nregion\n{unit}", justify="right", no_wrap=True, style="bold")
        table.add_column("\n\nratio", justify="right", no_wrap=True)
    for mpi in STANDARD:
        values = _values(result, mpi)
        sizes = sorted({size for _, _, size in values})
        for size in sizes:
            cells = [show_exact_size(size)]
            for metric in DEMO_METRICS:
                network = values[metric, MessagePath.NETWORK, size]
                region = values[metric, MessagePath.REGION, size]
                lower = FACTS[metric].lower_is_better
                gain = network / region if lower else region / network
                cells += [format_value(network), format_value(region), f"{format_value(gain)} ×"]
            if size == sizes[0]:
                table.add_row(f"[bold]{MPI_TITLES[mpi]}[/]")
            table.add_row(*cells, end_section=size == sizes[-1])
    return table


def _values(result: Mapping[str, Any], mpi: Mpi) -> dict[tuple[Metric, MessagePath, int], float]:
    return {
        (Metric(line["metric"]), MessagePath(line["scenario"]["path"]), point["size"]): point[
            "median"
        ]["value"]
        for line in result["series"]
        if line["scenario"]["mpi"] == mpi
        for point in line["points"]
    }
