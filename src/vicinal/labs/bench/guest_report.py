"""The result of the demonstration between guests, as a table for people."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS, Metric
from vicinal.labs.bench.report import format_value
from vicinal.labs.bench.scenario import MPI_TITLES
from vicinal.mpi.environment import MessagePath, Mpi
from vicinal.mpi.libraries import STANDARD


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
