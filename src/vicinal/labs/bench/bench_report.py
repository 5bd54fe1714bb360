"""Rows and bars as tables for people. Every table fits into 120 columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vicinal.base.sizes import KIB, MIB
from vicinal.labs.bench.bars import Bar, Group
from vicinal.labs.bench.report import format_cell, format_value, notes

_WIDEST_NAME = 27
_SCALES = {"B": (KIB, "KiB"), "msg/s": (1e6, "M/s"), "MB/s": (1e3, "GB/s")}
"""Units that tables show in a larger unit than results."""


def bench_table(result: Mapping[str, Any]) -> Table:
    """The rows of a bench result with their bars, group by group."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("row", no_wrap=True)
    for heading in ("ours", "theirs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True, style="bold")
    table.add_column("95 %", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("theirs is", no_wrap=True, max_width=_WIDEST_NAME)
    for group in result["groups"]:
        rows = [row for row in result["rows"] if row["group"] == group["name"]]
        measured = [row for row in rows if row["measured"]]
        for row in measured:
            table.add_row(row["name"], *_cells(row), end_section=row is measured[-1])
    return table


BENCH_LEGEND = """\
ratio: median of ours / median of theirs over {trials} trials of each, in turn
theirs is: the best of the row's candidates, as bars.json names them
95 %: the interval of that ratio; ?: it crosses the bar
line: ns that a cache line took from CPU to CPU; *: the hypervisor moved the CPUs meanwhile"""
"""The meaning of the columns of bench_table()."""


def _cells(row: Mapping[str, Any]) -> list[str | Text]:
    return [*_sides(row), *_measured(row), _bar_text(row), _verdict(row), _line(row), _theirs(row)]


def _sides(row: Mapping[str, Any]) -> list[str]:
    """Both medians and their unit."""
    unit = row["ours"]["unit"]
    scale, shown = _SCALES.get(unit, (1, unit))
    sides = [row["ours"], row["theirs"]]
    values = [side["median"]["value"] / scale if side else None for side in sides]
    return [*map(format_cell, values), shown]


def _measured(row: Mapping[str, Any]) -> list[str]:
    """The ratio and its interval, or dashes if the row has none."""
    return list(_ratio(row["measured"])) if row["unit"] == "ratio" else ["–", "–"]


def _ratio(estimate: Mapping[str, float]) -> tuple[str, str]:
    ratio, low, high = (format_value(estimate[part]) for part in ("value", "low", "high"))
    return ratio, f"{low}–{high}" if estimate["confidence"] else "–"


def _bar_text(row: Mapping[str, Any]) -> str:
    ((kind, limit),) = row["bar"].items()
    return format_limit(limit, at_most=kind == "at_most", unit=row["unit"])


def _verdict(row: Mapping[str, Any]) -> Text:
    text = "yes" if row["met"] else "no"
    if not row["certain"]:
        text += " ?"
    return Text(text, style="green" if row["met"] else "red")


def _line(row: Mapping[str, Any]) -> str:
    placement = row.get("placement")
    if placement is None:
        return "–"
    return f"{placement['line_ns']:.0f}{'*' if placement['boundary_ns'] else ''}"


def _theirs(row: Mapping[str, Any]) -> str:
    return row["theirs"]["name"] if row["theirs"] else "–"


def format_limit(limit: float, *, at_most: bool, unit: str) -> str:
    """A bar such as `≤ 1.1` or `≤ 1 MiB`."""
    sign = "≤" if at_most else "≥"
    if unit == "bytes":
        return f"{sign} {limit / MIB:.3g} MiB"
    return f"{sign} {limit:g}{f' {unit}' if unit in ('ns', 's') else ''}"


def states_table(rows: Sequence[Mapping[str, Any]]) -> Table | None:
    """Ratios by the placement of the CPUs by the hypervisor. None if no row has them."""
    table = Table(
        title="By the placement of the two CPUs",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("row", no_wrap=True)
    for state in ("together", "apart"):
        table.add_column("line", justify="right", no_wrap=True)
        table.add_column(state, justify="right", no_wrap=True, style="bold")
        table.add_column("95 %", justify="right", no_wrap=True)
        table.add_column("trials", justify="right", no_wrap=True)
    table.add_column("changed", justify="right", no_wrap=True)
    for row in rows:
        placement = row.get("placement")
        if placement and placement["states"]:
            states = {entry["state"]: entry for entry in placement["states"]}
            cells = [cell for name in ("together", "apart") for cell in _state(states.get(name))]
            table.add_row(row["name"], *cells, str(placement["changed"]))
    return table if table.row_count else None


STATES_LEGEND = """\
together, apart: trials with a short, a long cache line before and after; –: fewer than 3 of a side
trials: fewest of a side; changed: trials in which the CPUs were moved; they count in neither"""
"""The meaning of the columns of states_table()."""


def _state(entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return ["–"] * 4
    return [f"{entry['line_ns']:.0f}", *_ratio(entry["ratio"]), str(min(entry["trials"].values()))]


def summary(result: Mapping[str, Any]) -> Iterator[str]:
    """Lines below the table: how many bars are met, what was not measured, and notes."""
    rows = result["rows"]
    measured = [row for row in rows if row["measured"]]
    met = sum(row["met"] for row in measured)
    yield f"{met} of {len(measured)} measured bars are met."
    for reason, names in _by_reason(rows, lambda row: [row.get("not_measured")]).items():
        yield f"Not measured: {reason}: {', '.join(names)}"
    for note, names in _by_reason(rows, lambda row: row["notes"]).items():
        yield f"Note: {note}: {', '.join(names)}"


def _by_reason(rows: Sequence[Mapping[str, Any]], reasons: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for reason in reasons(row):
            if reason:
                found.setdefault(reason, []).append(row["name"])
    return {reason: _shorten(names) for reason, names in found.items()}


def _shorten(names: Sequence[str]) -> list[str]:
    """Names of rows. Rows that differ only in size become one name with all sizes."""
    families: dict[str, list[str]] = {}
    for name in names:
        family, _, size = name.rpartition("-")
        families.setdefault(family, []).append(size)
    return [
        f"{family}-{sizes[0]}" if len(sizes) == 1 else f"{family}-{{{','.join(sizes)}}}"
        for family, sizes in families.items()
    ]


def bars_table(groups: Sequence[Group]) -> Table:
    """A table of all bars that `vicinal bench` can measure."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("row", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("issue", justify="right")
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("what is measured")
    for group in groups:
        for bar in group.bars:
            cells = [bar.name, group.name, str(bar.issue), _limit_of(bar), bar.title]
            table.add_row(*cells, end_section=bar is group.bars[-1])
    return table


def _limit_of(bar: Bar) -> str:
    return format_limit(bar.limit, at_most=bar.at_most is not None, unit=bar.unit)


def _trials(result: Mapping[str, Any]) -> str:
    """The number of trials of the rows, or its range if they differ."""
    numbers = {row["trials"] for row in result["rows"] if row["measured"]}
    if not numbers:
        return str(result["conditions"]["trials"])
    return str(*numbers) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def show_bench(result: dict[str, Any], console: Console) -> None:
    """Print the tables and all notes for their readers."""
    console.print(bench_table(result))
    legend = BENCH_LEGEND.format(trials=_trials(result))
    console.print(legend, style="dim", highlight=False)
    states = states_table(result["rows"])
    if states is not None:
        console.print()
        console.print(states)
        console.print(STATES_LEGEND, style="dim", highlight=False)
    console.print()
    for line in [*summary(result), *notes(result)]:
        console.print(line, markup=False, highlight=False)
