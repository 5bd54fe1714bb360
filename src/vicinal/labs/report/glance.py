"""A chart of all workloads: the performance of each environment beside its base.

The model is the summary chart of the published comparison of hypervisors and containers (2016). The
axis is logarithmic, so that twice and half are equally far from the base. Each line has its
interval and both absolute values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import matplotlib

from vicinal.labs.report import numbers, references
from vicinal.labs.report.axes import ratio_axis, reach
from vicinal.labs.report.curves import CLAIMED, named
from vicinal.labs.report.drawing import GROUND, SETTINGS, Plot, frame
from vicinal.labs.report.palette import GRID, INK, MUTED, PAPER, Style, entry, of_comparison
from vicinal.labs.report.references import Reference
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import Compared, Summary

WIDE, NARROW = 640, 300
_LANE, _TALL_LANE = 13, 25
_TITLE_LANE = 17
_SIZES = 3


@dataclass(frozen=True)
class _Lane:
    """A line of the chart: a workload's name, or a comparison in it."""

    top: float
    heading: str = ""
    label: str = ""
    compared: Compared | None = None
    stars: tuple[Reference, ...] = ()
    """Published figures of the same comparison."""


def glance(
    name: str,
    summary: Summary,
    styles: Mapping[str, Style],
    *,
    wide: bool,
    emulated: bool = False,
) -> Plot | None:
    """The chart; None if nothing was compared. `emulated` is said in its title."""
    tall = _LANE if wide else _TALL_LANE  # absolute values are beside or below
    lanes = list(_lanes(summary, tall))
    if not any(lane.compared for lane in lanes):
        return None
    study = summary.study
    used = [
        each
        for each in study.design.comparisons
        if any(lane.compared and lane.compared.comparison == each for lane in lanes)
    ]
    looks = {each: of_comparison(each, study.design.comparisons, styles) for each in used}
    bases = {each.base for each in used}
    against = ""
    if len(bases) == 1:  # once in the title, instead of on every line
        against = f" beside {styles[used[0].base].title}"
        looks = {each: replace(look, title=styles[each.test].title) for each, look in looks.items()}
    legend = [entry(look, dash="none") for look in looks.values()]
    stars = [star for lane in lanes for star in lane.stars]
    star_looks = references.looks_of(stars, study.design.comparisons, styles)
    legend += references.legend(stars, star_looks, used)
    height = lanes[-1].top + tall
    left, right = (112, 196) if wide else (44, 12)
    title = f"All workloads at a glance{', emulated' * emulated}{against}"
    figure, axes = frame(
        title, legend, height=height, width=WIDE if wide else NARROW, left=left, right=right
    )
    shown: list[float] = []
    with matplotlib.rc_context(SETTINGS):
        axes.set_ylim(height, 0)
        for lane in lanes:
            middle = lane.top + _LANE / 2
            if lane.heading:
                axes.axhline(lane.top + 2, color=GRID.light, linewidth=0.7, clip_on=False)
                text = {"xytext": (-left + 4, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate(
                    lane.heading,
                    (0, middle + 3),
                    xycoords=("axes fraction", "data"),
                    fontsize=8.5,
                    fontweight="bold",
                    bbox=GROUND,
                    **text,  # type: ignore[arg-type]
                )
                continue
            compared = lane.compared
            assert compared is not None
            axes.annotate(
                lane.label,
                (0, middle),
                xycoords=("axes fraction", "data"),
                xytext=(-6, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=8,
            )
            style = looks[compared.comparison]
            performance = _performance(compared)
            shown += [performance.value, performance.low, performance.high]
            axes.errorbar(
                [performance.value],
                [middle],
                xerr=reach(performance),
                color=style.color,
                marker=style.marker,
                markersize=5,
                markerfacecolor=style.color if compared.verdict in CLAIMED else PAPER.light,
                capsize=2,
                linewidth=1.3,
            )
            for star in lane.stars:
                lower_is_better = compared.quantity.lower_is_better
                shown.append(1 / star.value if lower_is_better else star.value)
                references.draw(axes, shown[-1], middle, star_looks[star.whose])
            axes.annotate(
                _absolutes(compared),
                (1, middle),
                xycoords=("axes fraction", "data"),
                xytext=(right - 6, 0) if wide else (0, -12),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=8,
                color=INK.light if wide else MUTED.light,
                bbox=GROUND,
            )
        ratio_axis(axes, shown, study.design.margin, "x")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("performance beside the base; right is better")
        axes.xaxis.label.set_color(MUTED.light)
    return Plot(name, title, _words(title, lanes, styles), figure, stars=tuple(stars))


def _lanes(summary: Summary, tall: float) -> Iterator[_Lane]:
    """Lanes of the workloads in the study's order, each with up to three sizes."""
    top = 0.0
    for workload in summary.study.workloads:
        statistic = workload.statistics[0]
        chosen = [
            each
            for each in summary.compared
            if each.workload == workload.name and each.statistic == statistic
        ]
        if not chosen:
            continue
        yield _Lane(top, heading=named(workload, statistic))
        top += _TITLE_LANE
        published = references.of_ratios(summary.published, workload, statistic)
        for size in representative(chosen):
            label = "" if size is None else numbers.size(size)
            for each in (each for each in chosen if each.size == size):
                stars = [
                    star
                    for star in published
                    if star.size == size and references.is_of(star, each.comparison)
                ]
                yield _Lane(top, label=label, compared=each, stars=tuple(stars))
                label = ""
                top += tall
            top += 3
        top += 2


def representative(compared: Sequence[Compared]) -> list[int | None]:
    """The smallest, the middle and the largest size; [None] if the workload has no sizes."""
    sizes = sorted({each.size for each in compared if each.size is not None})
    if not sizes:
        return [None]
    chosen = {sizes[index * (len(sizes) - 1) // (_SIZES - 1)] for index in range(_SIZES)}
    return [*sorted(chosen)]


def _performance(compared: Compared) -> Estimate:
    """The performance test / base: 2 for half the time, and for twice the rate."""
    ratio = compared.ratio
    if ratio is None:
        return Estimate(compared.efficiency, compared.efficiency, compared.efficiency, 0)
    if not compared.quantity.lower_is_better:
        return ratio
    if min(ratio.low, ratio.value) <= 0:
        return Estimate(compared.efficiency, compared.efficiency, compared.efficiency, 0)
    return Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.confidence)


def _absolutes(compared: Compared) -> str:
    return (
        f"{numbers.number(compared.base.value)} → "
        f"{numbers.with_unit(compared.test.value, compared.unit)}"
        f"  ({numbers.change(compared.base.value, compared.test.value)})"
    )


def _words(title: str, lanes: Sequence[_Lane], styles: Mapping[str, Style]) -> str:
    said = []
    heading = ""
    for lane in lanes:
        heading = lane.heading or heading
        if lane.compared is not None:
            test = styles[lane.compared.comparison.test].title
            size = "" if lane.compared.size is None else f" at {numbers.size(lane.compared.size)}"
            published = "".join(f", published {numbers.times(star.value)}" for star in lane.stars)
            said.append(f"{heading}{size}, {test}: {_absolutes(lane.compared)}{published}")
    return f"{title}. {'; '.join(said)}."
