"""Makes the report of results in a folder: the page, its plots, Markdown and CSV.

Templates make the page and the Markdown, and escape all text from outside.
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
"""A command or a name in a note of a study file, as marked by its author."""
_MARKDOWN_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>#|"})


_LAST_STEPS = 2
"""Steps after the plots: the tables, and the page."""


@dataclass(frozen=True)
class Made:
    """A written report."""

    page: Path
    warnings: tuple[str, ...]
    """What readers should know first, as sentences without a full stop."""


def make_report(folders: Sequence[Path], output: Path, searches: Sequence[Searched] = ()) -> Made:
    """Summarise each result, store the summary in its folder, and write one report of all.

    `searches` are searches of the tuner, shown beside the results. The summary of a result is not
    stored if another process writes to the result, or if this user may not. Raises VicinalError if
    a folder is no result, if the results are of different studies, or if `output` cannot be
    written.
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
    """The names of the folders. If two are equal, the whole paths."""
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def write_report(
    sources: Sequence[Source], folder: Path, searches: Sequence[Searched] = ()
) -> Path:
    """Write the report below `folder`, and return the path of the page.

    `searches` are searches of the tuner, which the page shows beside published figures of the same
    knobs. Raises VicinalError if the results are not of the same study, or if writing fails. Files
    that exist after a failure are complete.
    """
    check_same_study([source.summary.study.name for source in sources])
    count = sum(plots_of(source.summary) for source in sources) + len(searches) + _LAST_STEPS
    if len(sources) > 1:
        count += overlays_of(sources[0].summary.study)
    with show_steps(count) as steps:
        done = 0

        def draw(plot: Plot) -> Drawn:
            nonlocal done
            steps.begin(plot.title)
            svg = write_plot(plot, folder / PLOTS)
            drawn = Drawn(plot.name, plot.title, plot.alternative, inline(plot, svg))
            steps.finish()
            done += 1
            return drawn

        parts: list[Part] = []
        for number, source in enumerate(sources, 1):
            parts.append(part(source, f"r{number}" if len(sources) > 1 else "", draw))
        overlaid = [
            Overlaid(
                each.source.name, each.summary.study, each.summary.cells, each.summary.emulated
            )
            for each in parts
        ]
        laid_over = [draw(plot) for plot in overlays(overlaid)]
        gains = [gains_plot(f"tuning-{at}-gains", each) for at, each in enumerate(searches, 1)]
        drawn = [None if plot is None else draw(plot) for plot in gains]
        tuned = tuning(sources[0].summary.study.name, searches, drawn)
        # There are fewer plots than plots_of() says if some have no data.
        steps.skip(max(0, count - _LAST_STEPS - done))
        steps.begin("writing tables")
        write_csv(sources, folder, searches)
        steps.finish()
        steps.begin("writing the page")
        write_whole(folder / TEXT, markdown(parts, laid_over, tuned).encode())
        write_whole(folder / PAGE, page(parts, laid_over, tuned).encode())
        steps.finish()
    return folder / PAGE


def check_same_study(names: Sequence[str]) -> None:
    """Raise VicinalError unless all names of studies are equal."""
    if len(set(names)) > 1:
        raise VicinalError(
            f"these are results of different studies: {', '.join(dict.fromkeys(names))}",
            "name results of the same study, or make a report of each",
        )


def page(
    parts: Sequence[Part], overlays: Sequence[Drawn] = (), tuning: TuningShown | None = None
) -> str:
    """One HTML page that needs no other file. `overlays` are plots of several results."""
    values = _context(parts, overlays, tuning)
    return _environment().get_template("report.html").render(**values, roles=ROLES)


def markdown(
    parts: Sequence[Part], overlays: Sequence[Drawn] = (), tuning: TuningShown | None = None
) -> str:
    """The same content in Markdown. Tables are aligned, because terminals show it too."""
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
        "svg": Markup,  # drawn here, with all text escaped
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
    """A message as a sentence, with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _commands(text: str) -> Markup:
    """Escaped text for a page, with its commands in `code` elements."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))


def _moment(text: str) -> str:
    """A time of a result as `2026-11-23 03:00 UTC`."""
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _plain(text: str) -> str:
    """Text for Markdown, on one line and with its signs escaped."""
    return " ".join(str(text).split()).translate(_MARKDOWN_SIGNS)


def _plain_commands(text: str) -> str:
    """Text as of _plain(), with its commands as Markdown's code."""
    between = _COMMAND.split(" ".join(text.split()))
    # Every second part is a command, in which Markdown has no signs.
    parts = (
        f"`{part}`" if i % 2 else part.translate(_MARKDOWN_SIGNS) for i, part in enumerate(between)
    )
    return "".join(parts)


def _markdown_table(table: Table) -> str:
    """A table with aligned columns, numbers to the right."""
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
    """A table for each comparison, with workloads in rows and results in columns."""
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
