"""The demonstration between guests: a stock MPI over the network, and over the region."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from vicinal.base.sizes import KIB, MIB, show_exact_size
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB
from vicinal.cluster.vm.qemu.pair import GuestPair
from vicinal.labs.bench.demo import DemoPlan, measure_series, write_demo
from vicinal.labs.bench.jobs import Amount, GuestsRunner, measure_on
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS, Metric, Trial
from vicinal.labs.bench.report import format_value
from vicinal.labs.bench.result import result_head
from vicinal.labs.bench.sides import MPI_TITLES, Scenario
from vicinal.labs.programs import mpi_program
from vicinal.launch.guest_job import check_guests_have
from vicinal.mpi.environment import MessagePath, Mpi, provider_directory
from vicinal.mpi.libraries import STANDARD

_SIZES = (8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
_WINDOW = 16
"""Messages in flight; emulated processors need seconds for more of the large ones."""


@dataclass(frozen=True)
class GuestDemoPlan(DemoPlan):
    """What to measure between two guests, and how much."""

    sizes: Sequence[int] = _SIZES
    amount: Amount = Amount(trials=1, repetitions=3, seconds=0.05)  # noqa: RUF009 - frozen too

    @property
    def scenarios(self) -> list[Scenario]:
        """Every MPI library on the paths from guest to guest."""
        return [
            Scenario(mpi, path, arguments=("--window", str(_WINDOW)))
            for mpi in self.mpis
            for path in (MessagePath.NETWORK, MessagePath.REGION)
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


def write_guest_demo(result: dict[str, Any], directory: Path) -> list[Path]:
    """Write plot.png, plot.svg and result.json; return their paths."""
    return write_demo(result, directory, _caption(result))


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
