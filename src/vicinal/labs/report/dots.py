"""Plots of workloads without sizes: a lane for each environment, with a dot for each trial.

No line joins environments, because there is nothing between them.
"""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vicinal.labs.report import numbers, references
from vicinal.labs.report.axes import log_values, ratio_axis, reach
from vicinal.labs.report.curves import CLAIMED, named
from vicinal.labs.report.drawing import GROUND, SETTINGS, Plot, broken, frame
from vicinal.labs.report.palette import PAPER, Entry, Style, of_comparison
from vicinal.labs.study.analysis.summary import Cell, Compared, PublishedComparison
from vicinal.labs.study.file.model import Comparison, Statistic, Study, Workload

_LANE = 34
_LINE = 11
"""Points: what a label needs for each line after its first."""
_FAINT = 0.35


def values(
    name: str,
    workload: Workload,
    statistic: Statistic,
    cells: Sequence[Cell],
    styles: Mapping[str, Style],
    published: Sequence[PublishedComparison] = (),
) -> Plot:
    """Absolute values. Faint dots are trials; the marker is their median with its interval."""
    chosen = [cell for cell in cells if statistic in cell.across and cell.environment in styles]
    unit = chosen[0].unit if chosen else ""
    stars = references.of_values(published, workload, statistic, unit)
    looks = references.looks_of(stars, (), styles)
    measured = [cell.environment for cell in chosen]
    lanes = [*measured, *(each for each in looks if each not in measured)]
    labels = [
        f"{styles[cell.environment].title}:"
        f" {numbers.with_unit(cell.across[statistic].value, cell.unit)}"
        for cell in chosen
    ]
    labels += [f"{looks[whose].title}: published only" for whose in lanes[len(chosen) :]]
    better = "lower" if workload.quantity.lower_is_better else "higher"
    title = named(workload, statistic)
    figure, axes = _frame(title, references.legend(stars, looks, lanes), labels)
    shown: list[float] = [star.value for star in stars]
    with matplotlib.rc_context(SETTINGS):
        for row, cell in enumerate(chosen):
            style = styles[cell.environment]
            trials = cell.values.get(statistic, ())
            estimate = cell.across[statistic]
            shown += [*trials, estimate.low, estimate.high, estimate.value]
            axes.plot(
                trials,
                [row] * len(trials),
                marker="o",
                markersize=4,
                linestyle="none",
                color=style.color,
                alpha=_FAINT,
                markeredgewidth=0,
            )
            axes.errorbar(
                [estimate.value],
                [row],
                xerr=reach(estimate),
                color=style.color,
                marker=style.marker,
                markersize=6,
                capsize=3,
                linewidth=1.4,
            )
        for star in stars:
            references.draw(axes, star.value, lanes.index(star.whose), looks[star.whose])
        log_values(axes, shown, "x")
        _label(axes, labels)
        axes.set_xlabel(f"{unit}, {better} is better")
    words = "; ".join(
        f"{styles[cell.environment].title} {numbers.estimated(cell.across[statistic], cell.unit)}"
        for cell in chosen
    )
    alternative = f"{title}: {words}.{references.words(stars, looks, unit)}"
    return Plot(name, title, alternative, figure, stars=tuple(stars))


def ratios(
    name: str,
    workload: Workload,
    statistic: Statistic,
    compared: Sequence[Compared],
    study: Study,
    styles: Mapping[str, Style],
    published: Sequence[PublishedComparison] = (),
) -> Plot:
    """test/base with intervals and the margin's band.

    A hollow marker says that no difference was established.
    """
    chosen = [each for each in compared if each.statistic == statistic and each.ratio is not None]
    better = "below" if workload.quantity.lower_is_better else "above"
    title = f"{named(workload, statistic)}, beside the base"
    stars = references.of_ratios(published, workload, statistic)
    looks = references.looks_of(stars, study.design.comparisons, styles)
    measured = [Comparison(each.comparison.base, each.comparison.test) for each in chosen]
    lanes = [*measured, *(each for each in looks if each not in measured)]
    said = [
        f"{of_comparison(each.comparison, study.design.comparisons, styles).title}:"
        f" {numbers.times(each.ratio.value)}"
        for each in chosen
        if each.ratio is not None
    ]
    labels = [*said, *(f"{looks[whose].title}: published only" for whose in lanes[len(chosen) :])]
    figure, axes = _frame(title, references.legend(stars, looks, lanes), labels)
    shown: list[float] = [star.value for star in stars]
    with matplotlib.rc_context(SETTINGS):
        for row, each in enumerate(chosen):
            assert each.ratio is not None
            style = of_comparison(each.comparison, study.design.comparisons, styles)
            shown += [each.ratio.value, each.ratio.low, each.ratio.high]
            axes.errorbar(
                [each.ratio.value],
                [row],
                xerr=reach(each.ratio),
                color=style.color,
                marker=style.marker,
                markersize=6,
                markerfacecolor=style.color if each.verdict in CLAIMED else PAPER.light,
                capsize=3,
                linewidth=1.4,
            )
        for star in stars:
            references.draw(axes, star.value, lanes.index(star.whose), looks[star.whose])
        ratio_axis(axes, shown, study.design.margin, "x")
        _label(axes, labels)
        axes.set_xlabel(f"ratio, {better} 1 is better")
    alternative = f"{title}, with intervals. {'; '.join(said)}."
    alternative += references.words(stars, looks, "")
    return Plot(name, title, alternative, figure, stars=tuple(stars))


def _frame(title: str, legend: Sequence[Entry], labels: Sequence[str]) -> tuple[Figure, Axes]:
    return frame(title, legend, height=_lane(labels) * len(labels) + 10, left=14)


def _lane(labels: Sequence[str]) -> float:
    """Points: the height of each lane, which has room for the label with the most lines."""
    return _LANE + _LINE * max((broken(each).count("\n") for each in labels), default=0)


def _label(axes: Axes, labels: Sequence[str]) -> None:
    """Each label above the marker of its lane."""
    for row, words in enumerate(labels):
        axes.annotate(
            broken(words),
            (0, row),
            xycoords=("axes fraction", "data"),
            xytext=(2, 5),
            textcoords="offset points",
            fontsize=8.5,
            va="bottom",
            linespacing=1.1,
            bbox=GROUND,
        )
    axes.set_ylim(len(labels) - 0.55, -1 + 0.35 * _LANE / _lane(labels))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
