"""A report: the page, its plots, Markdown and CSV, in a folder."""

from collections.abc import Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.progress import show_steps
from vicinal.labs.report.content import Drawn, Part, Source, part, plots_of
from vicinal.labs.report.drawing import Plot, inline, write_plot
from vicinal.labs.report.overlay import Overlaid, overlays, overlays_of
from vicinal.labs.report.page import markdown, page
from vicinal.labs.report.separated import write_csv
from vicinal.labs.report.tuned import Searched, tuning
from vicinal.labs.report.tuned_plot import gains_plot
from vicinal.labs.study.result.whole import write_whole

PAGE, TEXT, PLOTS = "report.html", "report.md", "plots"


def write_report(
    sources: Sequence[Source], folder: Path, searches: Sequence[Searched] = ()
) -> Path:
    """Write all of it below `folder`, and return the page. Nothing is measured or computed.

    `searches` are the tuner's, which the page shows beside what was published of their knobs.

    Raises VicinalError where the results are not of the same study, or where writing fails: each
    file that is there then is whole.
    """
    check_same_study([source.summary.study.name for source in sources])
    count = sum(plots_of(source.summary) for source in sources) + len(searches) + 2
    if len(sources) > 1:
        count += overlays_of(sources[0].summary.study)
    with show_steps(count) as steps:

        def draw(plot: Plot) -> Drawn:
            steps.begin(plot.title)
            svg = write_plot(plot, folder / PLOTS)
            drawn = Drawn(plot.name, plot.title, plot.alternative, inline(plot, svg))
            steps.finish()
            return drawn

        parts: list[Part] = []
        for place, source in enumerate(sources, 1):
            parts.append(part(source, f"r{place}" if len(sources) > 1 else "", draw))
        together = [
            Overlaid(each.source.name, each.summary.study, each.summary.cells) for each in parts
        ]
        laid_over = [draw(plot) for plot in overlays(together)]
        gains = [gains_plot(f"tuning-{at}-gains", each) for at, each in enumerate(searches, 1)]
        drawn = [None if plot is None else draw(plot) for plot in gains]
        tuned = tuning(sources[0].summary.study.name, searches, drawn)
        steps.begin("writing tables")
        write_csv(sources, folder, searches)
        steps.begin("writing the page")
        write_whole(folder / TEXT, markdown(parts, laid_over, tuned).encode())
        write_whole(folder / PAGE, page(parts, laid_over, tuned).encode())
    return folder / PAGE


def check_same_study(names: Sequence[str]) -> None:
    """Raise VicinalError unless all results are of one study, by its name."""
    if len(set(names)) > 1:
        raise VicinalError(
            f"these are results of different studies: {', '.join(dict.fromkeys(names))}",
            "name results of the same study, or make a report of each",
        )
