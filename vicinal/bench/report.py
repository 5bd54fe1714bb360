"""Results as tables for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.columns import Columns
from rich.table import Table
from rich.text import Text

from vicinal.bench.bars import IDLE_ENDPOINT, Bar
from vicinal.bench.metric import FACTS, Metric
from vicinal.bench.scenario import MPI_TITLES
from vicinal.bench.sizes import KIB, MIB, format_size
from vicinal.launch.environment import Mpi

_DIGITS = 3

BUSY_LOAD = 0.5
"""Processes that ran or waited in the minute before; two ranks want two cores of their own."""


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

    Side by side where there is room, and else below each other.
    """
    tables = [_demo_table(result, mpi, metric, sizes) for metric in Metric]
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
        table.add_row(format_size(size), *_demo_cells(result, mpi, metric, size))
    return table


DEMO_LEGEND = """\
Two ranks, each pinned to a core of its own; medians of {trials} trials.
Latency is half a round trip, bandwidth one way; 1 MB is 10⁶ bytes.
network, region: each rank in an isolated node; over TCP, over Vicinal's region.
times faster, times more: the region against the network.
own shm: the MPI's own shared memory, both ranks in one node, as a yardstick;
without CMA: the same without copying straight out of the other process."""
"""What the columns of the demo's tables are."""


def _demo_cells(result: Mapping[str, Any], mpi: Mpi, metric: Metric, size: int) -> list[str]:
    values = {
        (line["scenario"]["path"], line["scenario"]["cma"]): point["median"]["value"]
        for line in result["series"]
        if line["metric"] == metric and line["scenario"]["mpi"] == mpi
        for point in line["points"]
        if point["size"] == size
    }
    network, region = values.get(("network", None)), values.get(("region", None))
    gain = "–"
    if network and region:
        times = network / region if FACTS[metric].lower_is_better else region / network
        gain = f"{format_value(times)} ×"
    own = [_cell(values.get(("shared-memory", cma))) for cma in (True, False)]
    return [_cell(network), _cell(region), gain, *own]


def _cell(value: float | None) -> str:
    return "–" if value is None else format_value(value)


def notes(result: Mapping[str, Any]) -> list[str]:
    """What a reader has to know about how a result came about."""
    lines = [f"Done without {limitation}." for limitation in result["conditions"]["limitations"]]
    load = result["machine"]["load"]
    if load > BUSY_LOAD:
        lines.append(
            f"Others kept this machine busy when it began (load {load:.1f}): "
            "its figures mean little; measure again when it is quiet."
        )
    return lines


def bench_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of a bench result with their bars. It fits into 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("row", no_wrap=True)
    for heading in ("ours", "theirs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True, style="bold")
    table.add_column("95 %", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    for row in rows:
        table.add_row(row["name"], *_sides(row), *_measured(row), _bar_text(row), _verdict(row))
    return table


BENCH_LEGEND = """\
ratio: median of ours / median of theirs over {trials} trials of each, in turn
95 %: the interval of that ratio; ?: it crosses the bar"""
"""What the columns of the table are."""


def _sides(row: Mapping[str, Any]) -> list[str]:
    """Both medians and their unit; bytes in KiB, which is what regions are made of."""
    unit = row["ours"]["unit"]
    scale, shown = (KIB, "KiB") if unit == "B" else (1, unit)
    values = [side["median"]["value"] / scale if side else None for side in _both(row)]
    return [*map(_cell, values), shown]


def _both(row: Mapping[str, Any]) -> list[Mapping[str, Any] | None]:
    return [row["ours"], row["theirs"]]


def _measured(row: Mapping[str, Any]) -> list[str]:
    """The ratio and its interval, where the row has them."""
    measured = row["measured"]
    if row["unit"] != "ratio":
        return ["–", "–"]
    ratio, low, high = (format_value(measured[part]) for part in ("value", "low", "high"))
    return [ratio, f"{low}–{high}" if measured["confidence"] else "–"]


def _bar_text(row: Mapping[str, Any]) -> str:
    ((kind, limit),) = row["bar"].items()
    return format_limit(limit, at_most=kind == "at_most", in_bytes=row["unit"] == "bytes")


def _verdict(row: Mapping[str, Any]) -> Text:
    text = "yes" if row["met"] else "no"
    if not row["certain"]:
        text += " ?"
    return Text(text, style="green" if row["met"] else "red")


def format_limit(limit: float, *, at_most: bool, in_bytes: bool) -> str:
    """A bar such as `≤ 1.1` or `≤ 1 MiB`."""
    sign = "≤" if at_most else "≥"
    return f"{sign} {limit / MIB:.3g} MiB" if in_bytes else f"{sign} {limit:g}"


def bars_table(bars: Sequence[Bar]) -> Table:
    """What `vicinal bench` can measure."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("row", no_wrap=True)
    table.add_column("issue", justify="right")
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("what is measured")
    for bar in bars:
        table.add_row(bar.name, str(bar.issue), _limit_of(bar), bar.title)
    return table


def _limit_of(bar: Bar) -> str:
    return format_limit(
        bar.limit, at_most=bar.at_most is not None, in_bytes=bar.metric == IDLE_ENDPOINT
    )
