"""The plot of a tuner's search: the gain of each objective over the previous setting."""

import matplotlib

from vicinal.labs.report import numbers
from vicinal.labs.report.axes import ratio_axis, reach
from vicinal.labs.report.drawing import GROUND, SETTINGS, Plot, frame
from vicinal.labs.report.palette import MUTED, PAPER, ROLES
from vicinal.labs.report.tuned import Gain, Searched, gains_of
from vicinal.labs.statistics.estimate import Estimate

_LANE = 42
_COLOR = ROLES[6].light
_SHOWN = ("better", "worse")


def gains_plot(name: str, searched: Searched) -> Plot | None:
    """Performance tuned / default: 2 for half the time, and for twice the rate. None if no figures.

    A filled marker says that a difference was shown, and a hollow one that it was not.
    """
    lanes = [(f"{tuned.workload}: {figure}", gain) for tuned, figure, gain in gains_of(searched)]
    if not lanes:
        return None
    title = f"{searched.title or searched.name}{', emulated' * searched.emulated}"
    title += ": beside the setting that was there"
    figure, axes = frame(title, (), height=_LANE * len(lanes), left=14)
    shown: list[float] = []
    with matplotlib.rc_context(SETTINGS):
        for row, (heading, gain) in enumerate(lanes):
            performance = _performance(gain)
            shown += [performance.value, performance.low, performance.high]
            axes.errorbar(
                [performance.value],
                [row],
                xerr=reach(performance),
                color=_COLOR,
                marker="s",
                markersize=6,
                markerfacecolor=_COLOR if gain.verdict in _SHOWN else PAPER.light,
                capsize=3,
                linewidth=1.4,
            )
            for words, above, color in (
                (heading, 19, SETTINGS["text.color"]),
                (_absolutes(gain), 9, MUTED.light),
            ):
                axes.annotate(
                    words,
                    (0, row),
                    xycoords=("axes fraction", "data"),
                    xytext=(2, above),
                    textcoords="offset points",
                    fontsize=8.5,
                    color=color,
                    va="center",
                    bbox=GROUND,
                )
        ratio_axis(axes, shown, 0, "x")
        axes.set_ylim(len(lanes) - 0.6, -0.75)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("performance beside the setting that was there; right is better")
        axes.xaxis.label.set_color(MUTED.light)
    said = "; ".join(f"{heading}: {_absolutes(gain)}" for heading, gain in lanes)
    return Plot(name, title, f"{title}, with intervals. {said}.", figure)


def _performance(gain: Gain) -> Estimate:
    ratio = gain.ratio
    if not gain.lower_is_better or min(ratio.low, ratio.value) <= 0:
        return ratio
    return Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.confidence)


def _absolutes(gain: Gain) -> str:
    before = numbers.number(gain.before.value)
    after = numbers.with_unit(gain.after.value, gain.unit)
    change = numbers.change(gain.before.value, gain.after.value)
    return f"{before} → {after} ({change}), {gain.verdict}"
