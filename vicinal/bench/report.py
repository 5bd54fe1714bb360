"""Results as tables for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from vicinal.bench.bars import Bar
from vicinal.bench.metric import FACTS, Metric
from vicinal.bench.scenario import MPI_TITLES
from vicinal.bench.sizes import format_size
from vicinal.launch.environment import Mpi

_DIGITS = 3


def format_value(value: float) -> str:
    """Three significant digits, whole numbers in groups of thousands: 0.26, 14.3, 12,400."""
    if value == 0:
        return "0"
    if value >= 1000:
        rounded = float(f"{value:.{_DIGITS}g}")
        return f"{rounded:,.0f}"
    text = f"{value:#.{_DIGITS}g}"
    return text.rstrip(".")


def demo_table(result: Mapping[str, Any], mpi: Mpi, sizes: Sequence[int]) -> Table:
    """Latency and bandwidth of one MPI library over all paths, for some of the sizes."""
    table = Table(
        title=f"{MPI_TITLES[mpi]}: two ranks, each on its own node and core",
        title_justify="left",
        caption="latency: half a round trip; bandwidth: one way, 1 MB = 10⁶ bytes; medians of "
        f"{result['conditions']['trials']} trials\nown shm: the MPI's own shared memory, both "
        "ranks on one node, as a yardstick: with / without cross-memory attach (CMA)",
        caption_justify="left",
    )
    table.add_column("message\nsize", justify="right", no_wrap=True)
    for metric in Metric:
        name = metric.value
        for heading in (
            f"{name}\nnetwork\n{FACTS[metric].unit}",
            "\nregion\n" + FACTS[metric].unit,
            "\nregion is\n" + ("faster by" if metric is Metric.LATENCY else "larger by"),
            f"\nown shm\n{FACTS[metric].unit}",
        ):
            table.add_column(heading, justify="right", no_wrap=True)
    for size in sizes:
        cells = [format_size(size)]
        for metric in Metric:
            cells += _demo_cells(result, mpi, metric, size)
        table.add_row(*cells)
    return table


def _demo_cells(result: Mapping[str, Any], mpi: Mpi, metric: Metric, size: int) -> list[str]:
    values = {
        (line["scenario"]["path"], line["scenario"]["cma"]): point["median"]["value"]
        for line in result["series"]
        if line["metric"] == metric and line["scenario"]["mpi"] == mpi
        for point in line["points"]
        if point["size"] == size
    }
    network, region = values.get(("network", None)), values.get(("region", None))
    factor = "–"
    if network and region:
        gain = network / region if FACTS[metric].lower_is_better else region / network
        factor = f"{format_value(gain)} ×"
    own = [values.get(("shared-memory", cma)) for cma in (True, False)]
    return [_cell(network), f"[bold]{_cell(region)}[/]", factor, " / ".join(map(_cell, own))]


def _cell(value: float | None) -> str:
    return "–" if value is None else format_value(value)


def bench_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of a bench result with their bars."""
    table = Table(
        title="Measured against the bars",
        title_justify="left",
        caption="ratio: median of ours / median of theirs, with its 95 % interval over pairs of "
        "trials; ?: the interval crosses the bar",
        caption_justify="left",
    )
    table.add_column("row", no_wrap=True)
    table.add_column("ours", justify="right", no_wrap=True)
    table.add_column("theirs", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("met")
    for row in rows:
        table.add_row(
            row["name"],
            _side_text(row["ours"]),
            _side_text(row["theirs"]) if row["theirs"] else "–",
            _measured_text(row),
            _bar_text(row),
            _verdict(row),
        )
    return table


def _side_text(side: Mapping[str, Any]) -> str:
    return f"{format_value(side['median']['value'])} {side['unit']}"


def _measured_text(row: Mapping[str, Any]) -> str:
    measured = row["measured"]
    text = format_value(measured["value"])
    if row["unit"] == "bytes":
        return f"{text} B"
    if measured["confidence"] == 0 or measured["low"] == measured["high"]:
        return text
    return f"{text} ({format_value(measured['low'])}–{format_value(measured['high'])})"


def _bar_text(row: Mapping[str, Any]) -> str:
    ((kind, limit),) = row["bar"].items()
    return f"{'≤' if kind == 'at_most' else '≥'} {format_value(limit)}"


def _verdict(row: Mapping[str, Any]) -> Text:
    text = "yes" if row["met"] else "no"
    if not row["certain"]:
        text += " ?"
    return Text(text, style="green" if row["met"] else "red")


def bars_table(bars: Sequence[Bar]) -> Table:
    """What `vicinal bench` can measure."""
    table = Table(title="Rows of `vicinal bench`", title_justify="left")
    table.add_column("row", no_wrap=True)
    table.add_column("issue", justify="right")
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("what is measured")
    for bar in bars:
        table.add_row(bar.name, str(bar.issue), bar.limit_text, bar.title)
    return table
