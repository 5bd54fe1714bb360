"""Tables of the demonstrations, and the format of figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.columns import Columns
from rich.table import Table

from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS, Metric
from vicinal.labs.bench.sides import MPI_TITLES
from vicinal.mpi.libraries import STANDARD, Mpi

_DIGITS = 3

BUSY_LOAD = 0.5
"""Load of the minute before, above which a note appears: two ranks need two idle cores."""


def format_value(value: float) -> str:
    """Three significant digits, two below 0.1, whole numbers in groups: 0.26, 14.3, 12,400."""
    if value == 0:
        return "0"
    if value >= 1000:
        rounded = float(f"{value:.{_DIGITS}g}")
        return f"{rounded:,.0f}"
    digits = _DIGITS if value >= 0.1 else _DIGITS - 1
    return f"{value:#.{digits}g}".rstrip(".")


def demo_tables(result: Mapping[str, Any], mpi: Mpi, sizes: Sequence[int]) -> Columns:
    """Latency and bandwidth of one MPI library over all paths, for some of the sizes.

    The tables are side by side if there is room, or else below each other.
    """
    tables = [_demo_table(result, mpi, metric, sizes) for metric in DEMO_METRICS]
    return Columns(tables, padding=(1, 3))


def _demo_table(result: Mapping[str, Any], mpi: Mpi, metric: Metric, sizes: Sequence[int]) -> Table:
    facts = FACTS[metric]
    table = Table(
        title=f"{MPI_TITLES[mpi]}: {metric.value} [{facts.unit}]",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1),
    )
    table.add_column("message\nsize", justify="right", no_wrap=True)
    table.add_column("\nnetwork", justify="right", no_wrap=True)
    table.add_column("\nregion", justify="right", no_wrap=True, style="bold")
    gain = "faster" if facts.lower_is_better else "more"
    table.add_column(f"times\n{gain}", justify="right", no_wrap=True)
    table.add_column("own\nshm", justify="right", no_wrap=True)
    table.add_column("without\nCMA", justify="right", no_wrap=True)
    for size in sizes:
        table.add_row(show_exact_size(size), *_demo_cells(result, mpi, metric, size))
    return table


DEMO_LEGEND = """\
Two ranks, each pinned to a core of its own; medians of {trials} trials.
Latency is half a round trip, bandwidth one way; 1 MB is 10⁶ bytes.
network, region: each rank in an isolated node; over TCP, over Vicinal's region.
times faster, times more: the region against the network.
own shm: the MPI's own shared memory, both ranks in one node, as a yardstick;
without CMA: the same without copying straight out of the other process."""
"""The meaning of the columns of demo_tables()."""


def _demo_cells(result: Mapping[str, Any], mpi: Mpi, metric: Metric, size: int) -> list[str]:
    values = _values(result, mpi, metric, size)
    network, region = values.get(("network", None)), values.get(("region", None))
    gain = _gain(metric, network, region) if network and region else "–"
    own = [format_cell(values.get(("shared-memory", cma))) for cma in (True, False)]
    return [format_cell(network), format_cell(region), gain, *own]


def _values(
    result: Mapping[str, Any], mpi: Mpi, metric: Metric, size: int
) -> dict[tuple[str, bool | None], float]:
    """The medians by path, and for shared memory with and without CMA."""
    return {
        (line["scenario"]["path"], line["scenario"]["cma"]): point["median"]["value"]
        for line in result["series"]
        if line["metric"] == metric and line["scenario"]["mpi"] == mpi
        for point in line["points"]
        if point["size"] == size
    }


def _gain(metric: Metric, network: float, region: float) -> str:
    """The factor by which the region is better."""
    times = network / region if FACTS[metric].lower_is_better else region / network
    return f"{format_value(times)} ×"


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
        series = [line for line in result["series"] if line["scenario"]["mpi"] == mpi]
        sizes = sorted({point["size"] for line in series for point in line["points"]})
        for size in sizes:
            cells = [show_exact_size(size)]
            for metric in DEMO_METRICS:
                values = _values(result, mpi, metric, size)
                network, region = values["network", None], values["region", None]
                cells += [format_value(network), format_value(region)]
                cells.append(_gain(metric, network, region))
            if size == sizes[0]:
                table.add_row(f"[bold]{MPI_TITLES[mpi]}[/]")
            table.add_row(*cells, end_section=size == sizes[-1])
    return table


def format_cell(value: float | None) -> str:
    """A value, or a dash if there is none."""
    return "–" if value is None else format_value(value)


def notes(result: Mapping[str, Any]) -> list[str]:
    """What readers must know about how a result was measured."""
    lines = [f"Done without {limitation}." for limitation in result["conditions"]["limitations"]]
    load = result["host"]["load"]
    if load > BUSY_LOAD and not result["conditions"]["realtime"]:
        lines.append(
            f"Others kept this machine busy when it began (load {load:.1f}): "
            "its figures mean little; measure again when it is quiet."
        )
    if result["conditions"]["realtime"]:
        lines.append(
            "Ranks with a core of their own ran at real-time priority, before all other programs."
        )
    return lines
