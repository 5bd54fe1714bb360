"""Plots of values against size, and of ratios against size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import matplotlib

from vicinal.base.sizes import show_exact_size
from vicinal.labs.report import numbers, references
from vicinal.labs.report.axes import log_values, position, ratio_axis, reach, size_axis
from vicinal.labs.report.drawing import SETTINGS, Plot, frame
from vicinal.labs.report.lines import with_gaps
from vicinal.labs.report.palette import PAPER, Style, entry, of_comparison
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import Cell, Compared, PublishedComparison, Verdict
from vicinal.labs.study.file.model import Statistic, Study, Workload

_ASIDE = 0.2
"""How far apart the markers of two comparisons at one size are, as a part of the nearest sizes'
distance."""

CLAIMED = {Verdict.BETTER, Verdict.WORSE}


def curve(
    name: str,
    workload: Workload,
    statistic: Statistic,
    cells: Sequence[Cell],
    styles: Mapping[str, Style],
    published: Sequence[PublishedComparison] = (),
) -> Plot:
    """A statistic's absolute values against size, with a line for each environment.

    Lines only join sizes that are near enough to read off values between them.
    """
    lines = _by_environment(cells, statistic, styles)
    unit = next(cell.unit for line in lines.values() for cell in line)
    stars = references.of_values(published, workload, statistic, unit)
    looks = references.looks_of(stars, (), styles)
    measured = {cell.size for line in lines.values() for cell in line if cell.size is not None}
    sizes = _with_those_of(stars, measured)
    better = "lower" if workload.quantity.lower_is_better else "higher"
    title = named(workload, statistic)
    legend = [entry(styles[environment]) for environment in lines]
    figure, axes = frame(title, [*legend, *references.legend(stars, looks, lines)])
    shown: list[float] = [star.value for star in stars]
    with matplotlib.rc_context(SETTINGS):
        for environment, line in lines.items():
            style = styles[environment]
            there = {cell.size: cell.across[statistic] for cell in line if cell.size is not None}
            joined = list(with_gaps(sorted(there)))
            axes.plot(
                [math.nan if size is None else position(size, sizes) for size in joined],
                [math.nan if size is None else there[size].value for size in joined],
                label=environment,
                color=style.color,
                linestyle=style.dash,
                linewidth=1.4,
                marker=style.marker,
                markersize=4.5,
            )
            shown += [part for each in there.values() for part in _parts(each)]
            known = {size: each for size, each in there.items() if each.confidence > 0}
            axes.errorbar(
                [position(size, sizes) for size in known],
                [each.value for each in known.values()],
                yerr=reach(*known.values()),
                color=style.color,
                linewidth=1.2,
                capsize=2,
                linestyle="none",
            )
        for star in stars:
            assert star.size is not None
            references.draw(axes, position(star.size, sizes), star.value, looks[star.whose])
        size_axis(axes, sizes)
        log_values(axes, shown)
        axes.set_ylabel(f"{unit}, {better} is better")
    words = "; ".join(
        f"{styles[environment].title}: {_ends(line, statistic)}"
        for environment, line in lines.items()
    )
    alternative = f"{title}, against size, with intervals. {words}."
    alternative += references.words(stars, looks, unit)
    return Plot(name, title, alternative, figure, tuple(sizes), stars=tuple(stars))


def ratios(
    name: str,
    workload: Workload,
    statistic: Statistic,
    compared: Sequence[Compared],
    study: Study,
    styles: Mapping[str, Style],
    published: Sequence[PublishedComparison] = (),
) -> Plot:
    """test/base against size, with intervals and the margin's band.

    A hollow marker says that no difference was established.
    """
    chosen = [each for each in compared if each.statistic == statistic and each.size is not None]
    stars = references.of_ratios(published, workload, statistic)
    star_looks = references.looks_of(stars, study.design.comparisons, styles)
    sizes = _with_those_of(stars, {each.size for each in chosen if each.size is not None})
    better = "below" if workload.quantity.lower_is_better else "above"
    title = f"{named(workload, statistic)}, beside the base"
    comparisons = [
        comparison
        for comparison in study.design.comparisons
        if any(each.comparison == comparison for each in chosen)
    ]
    looks = [of_comparison(each, study.design.comparisons, styles) for each in comparisons]
    legend = [entry(style, dash="none") for style in looks]
    figure, axes = frame(title, [*legend, *references.legend(stars, star_looks, comparisons)])
    shown: list[float] = [star.value for star in stars]
    asides: dict[references.Reference, float] = {}
    positions = [position(size, sizes) for size in sizes]
    nearest = min((right - left for left, right in pairwise(positions)), default=1.0)
    spread = nearest * min(_ASIDE, 0.7 / max(1, len(comparisons)))
    with matplotlib.rc_context(SETTINGS):
        for turn, (comparison, style) in enumerate(zip(comparisons, looks, strict=True)):
            aside = spread * (turn - (len(comparisons) - 1) / 2)
            for star in stars:
                if references.is_of(star, comparison):
                    asides[star] = aside
            found = [
                (each.size, each.ratio, each.verdict in CLAIMED)
                for each in chosen
                if each.comparison == comparison and each.size is not None and each.ratio
            ]
            shown += [part for _, ratio, _ in found for part in _parts(ratio)]
            for is_claimed in (True, False):
                part = [(size, ratio) for size, ratio, claimed in found if claimed == is_claimed]
                axes.errorbar(
                    [position(size, sizes) + aside for size, _ in part],
                    [ratio.value for _, ratio in part],
                    yerr=reach(*(ratio for _, ratio in part)),
                    color=style.color,
                    marker=style.marker,
                    markersize=5,
                    markerfacecolor=style.color if is_claimed else PAPER.light,
                    linewidth=1.2,
                    capsize=2,
                    linestyle="none",
                )
        for star in stars:
            assert star.size is not None
            x = position(star.size, sizes) + asides.get(star, 0.0)
            references.draw(axes, x, star.value, star_looks[star.whose])
        size_axis(axes, sizes)
        ratio_axis(axes, shown, study.design.margin)
        axes.set_ylabel(f"ratio, {better} 1 is better")
    words = "; ".join(
        _ratio_words(style.title, [each for each in chosen if each.comparison == comparison])
        for comparison, style in zip(comparisons, looks, strict=True)
    )
    alternative = f"{title}: ratios with intervals against size. {words}."
    alternative += references.words(stars, star_looks, "")
    return Plot(name, title, alternative, figure, tuple(sizes), stars=tuple(stars))


def named(workload: Workload, statistic: Statistic) -> str:
    """`Bandwidth: median`, `Broadcast: P99 latency`."""
    said = str(workload.quantity) in workload.title.lower()
    return f"{workload.title}: {statistic}" + ("" if said else f" {workload.quantity}")


def _with_those_of(stars: Sequence[references.Reference], sizes: Iterable[int]) -> list[int]:
    """All sizes that were measured or published."""
    return sorted({*sizes, *(star.size for star in stars if star.size is not None)})


def _parts(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _by_environment(
    cells: Iterable[Cell], statistic: Statistic, styles: Mapping[str, Style]
) -> dict[str, list[Cell]]:
    """Cells with a value, by environment in the order of the study."""
    found: dict[str, list[Cell]] = {name: [] for name in styles}
    for cell in cells:
        if cell.environment in found and statistic in cell.across:
            found[cell.environment].append(cell)
    return {name: line for name, line in found.items() if line}


def _ends(line: Sequence[Cell], statistic: Statistic) -> str:
    ordered = sorted(line, key=lambda cell: cell.size or 0)
    return " to ".join(
        f"{numbers.with_unit(cell.across[statistic].value, cell.unit)} at"
        f" {show_exact_size(cell.size or 0)}"
        for cell in (ordered[0], ordered[-1])
    )


def _ratio_words(title: str, chosen: Sequence[Compared]) -> str:
    values = [each.ratio.value for each in chosen if each.ratio]
    if not values:
        return f"{title}: too few trials for ratios"
    return f"{title}: ratios from {numbers.number(min(values))} to {numbers.number(max(values))}"
