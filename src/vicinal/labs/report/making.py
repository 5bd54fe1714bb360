"""From results' folders to their report: the page, its plots, Markdown and CSV, in a folder.

The page and the Markdown are made by their templates, which escape whatever comes from outside.
"""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.base.progress import show_steps
from vicinal.labs.report import numbers
from vicinal.labs.report.content import Drawn, Part, Source, part, plots_of
from vicinal.labs.report.drawing import Plot, inline, write_plot
from vicinal.labs.report.glance import representative
from vicinal.labs.report.overlay import Overlaid, overlays, overlays_of
from vicinal.labs.report.palette import GLYPHS, ROLES
from vicinal.labs.report.separated import write_csv
from vicinal.labs.report.tables import Column, Table
from vicinal.labs.report.tuned import Searched, TuningShown, tuning
from vicinal.labs.report.tuned_plot import gains_plot
from vicinal.labs.study.analysis.as_json import UNITS, summary_to_json
from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.analysis.summary import Compared
from vicinal.labs.study.result.reading import Result, open_result
from vicinal.labs.study.result.whole import write_whole
from vicinal.labs.study.result.writing import ResultWriter

PAGE, TEXT, PLOTS = "report.html", "report.md", "plots"

EMULATED_NOTE = (
    "Emulated: QEMU emulated the processors of at least one side. These times say nothing about"
    " virtual machines on real hardware, so they have axes of their own."
)

_COMMAND = re.compile(r"`([^`\n]+)`")
"""A command or a name within a note of a study file, as its author marks it."""
_MARKDOWN_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>#|"})


@dataclass(frozen=True)
class Made:
    """A report that was written."""

    page: Path
    warnings: tuple[str, ...]
    """What its readers should know first, as sentences without a full stop."""


def make_report(folders: Sequence[Path], output: Path, searches: Sequence[Searched] = ()) -> Made:
    """Summarise each result, keep the summary in its folder, and write the report of all.

    `searches` are the tuner's, to be shown beside them.

    Where somebody else writes to a result, or this user may not, it is read only. Raises
    VicinalError where a folder is no result, the results are of different studies, or nothing can
    be written to `output`.
    """
    check_same_study([open_result(folder).manifest["study"]["name"] for folder in folders])
    names = short_names(folders)
    sources = [_summarised(folder, name) for folder, name in zip(folders, names, strict=True)]
    warnings = [each for source in sources for each in source.summary.warnings]
    return Made(write_report(sources, output, searches), tuple(dict.fromkeys(warnings)))


def _summarised(folder: Path, name: str) -> Source:
    writer, result = _opened(folder)
    with writer or nullcontext():
        summary = summarise(result)
        if writer is not None:
            writer.write_summary(summary_to_json(summary), UNITS)
    return Source(summary, result.manifest, name)


def _opened(folder: Path) -> tuple[ResultWriter | None, Result]:
    try:
        return ResultWriter.resume(folder)
    except VicinalError:
        return None, open_result(folder)


def short_names(folders: Sequence[Path]) -> list[str]:
    """As short as tells them apart."""
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


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
            Overlaid(
                each.source.name, each.summary.study, each.summary.cells, each.summary.emulated
            )
            for each in parts
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


def page(
    parts: Sequence[Part], overlays: Sequence[Drawn] = (), tuning: TuningShown | None = None
) -> str:
    """One HTML page that needs nothing else; `overlays` are plots of all results together."""
    values = _context(parts, overlays, tuning)
    return _environment().get_template("report.html").render(**values, roles=ROLES)


def markdown(
    parts: Sequence[Part], overlays: Sequence[Drawn] = (), tuning: TuningShown | None = None
) -> str:
    """All of it in Markdown: tables are aligned, for it is read in terminals too."""
    return _environment().get_template("report.md").render(**_context(parts, overlays, tuning))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vicinal.labs.report"),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "svg": Markup,  # drawn here, with every text in it escaped
        "markdown_table": _markdown_table,
        "plain": _plain,
        "plain_commands": _plain_commands,
        "commands": _commands,
        "percent": numbers.percent,
        "moment": _moment,
        "sentence": _sentence,
    }
    return environment


def _context(
    parts: Sequence[Part], overlays: Sequence[Drawn], tuning: TuningShown | None
) -> dict[str, Any]:
    return {
        "parts": parts,
        "study": parts[0].summary.study,
        "across": across(parts) if len(parts) > 1 else [],
        "overlays": overlays,
        "tuning": tuning,
        "made": datetime.now(UTC).isoformat(" ", timespec="minutes")[:16],
        "version": vicinal.__version__,
        "glyphs": GLYPHS,
        "emulated_note": EMULATED_NOTE,
    }


def _sentence(text: str) -> str:
    """With a capital and a full stop, which messages do not have."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _commands(text: str) -> Markup:
    """Text for a page, escaped, with its commands set as such."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))


def _moment(text: str) -> str:
    """`2026-11-23 03:00 UTC`, of what results have."""
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _plain(text: str) -> str:
    """Text that Markdown takes for text, on one line."""
    return " ".join(str(text).split()).translate(_MARKDOWN_SIGNS)


def _plain_commands(text: str) -> str:
    """The same, with its commands left as Markdown shows them."""
    between = _COMMAND.split(" ".join(text.split()))
    # Of every two parts the second is a command: in one, Markdown takes no sign for its own.
    parts = (
        f"`{part}`" if i % 2 else part.translate(_MARKDOWN_SIGNS) for i, part in enumerate(between)
    )
    return "".join(parts)


def _markdown_table(table: Table) -> str:
    """Aligned columns, numbers to the right."""
    rows = [[_plain(column.title) for column in table.columns]]
    rows += [[_plain(text) for text in row] for row in table.rows]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            text.rjust(width) if column.number else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        )
        for row in rows
    ]
    rule = " | ".join(
        "-" * (width - 1) + (":" if column.number else "-")
        for width, column in zip(widths, table.columns, strict=True)
    )
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def across(parts: Sequence[Part]) -> list[Table]:
    """A table for each comparison: workloads in rows, results in columns."""
    comparisons = dict.fromkeys(
        (each.base, each.test) for part in parts for each in part.summary.study.design.comparisons
    )
    tables = [_table(parts, base, test) for base, test in comparisons]
    return [table for table in tables if table.rows]


def _table(parts: Sequence[Part], base: str, test: str) -> Table:
    titles = {each.name: each.title for part in parts for each in part.summary.study.environments}
    rows = []
    workloads = {each.name: each for part in parts for each in part.summary.study.workloads}
    for workload in workloads.values():
        found = [
            {
                each.size: each
                for each in part.summary.compared
                if (each.comparison.base, each.comparison.test) == (base, test)
                and each.workload == workload.name
                and each.statistic == workload.statistics[0]
            }
            for part in parts
        ]
        everything = [each for of_part in found for each in of_part.values()]
        if everything:
            rows += [
                (workload.title, numbers.size(size), *(_cell(each.get(size)) for each in found))
                for size in representative(everything)
            ]
    return Table(
        f"{titles[test]} beside {titles[base]}: base → test, ratio with its interval, verdict",
        (
            Column("Workload", number=False),
            Column("Size"),
            *(Column(part.source.name, number=False) for part in parts),
        ),
        tuple(rows),
    )


def _cell(compared: Compared | None) -> str:
    if compared is None:
        return "–"
    ratio = "" if compared.ratio is None else f"; {numbers.estimated(compared.ratio)}"
    return (
        f"{numbers.number(compared.base.value)} → "
        f"{numbers.with_unit(compared.test.value, compared.unit)}{ratio}; {compared.verdict}"
    )
