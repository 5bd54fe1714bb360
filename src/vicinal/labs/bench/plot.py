"""Plots of latency and bandwidth against message size, with a line for each path."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.metric import FACTS, Metric
from vicinal.labs.bench.sides import MPI_TITLES
from vicinal.mpi.environment import Mpi

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
