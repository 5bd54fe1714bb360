"""`vicinal study compare`: compares two results."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.base.directories import check_writable

if TYPE_CHECKING:
    from vicinal.labs.study.analysis.results import CellsCompared, ResultsCompared

_COLUMNS = (
    "environment",
    "workload",
    "size",
    "statistic",
    "unit",
    "before",
    "before_low",
    "before_high",
    "after",
    "after_low",
    "after_high",
    "trials_before",
    "trials_after",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "p_corrected",
    "verdict",
)


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="Folder of the result to compare with.")
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Folder of another result.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table as CSV.")] = False,
    plots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Write plots with the values of both results there, as PNG and SVG.",
        ),
    ] = None,
) -> None:
    """Compare two results: first their differences in machine and study, then each cell of both.

    Trials of two results are not pairs. So the rank-sum test compares them, corrected for all
    comparisons as the first result's study says. The plots show what each environment did in both
    results. `vicinal study report` plots more than two results.
    """
    from vicinal.labs.study.analysis.results import compare_results
    from vicinal.labs.study.result.reading import open_result

    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    if plots is not None:
        check_writable(plots.absolute(), "name another directory with --plots")
    results = open_result(before), open_result(after)
    found = compare_results(*results)
    if as_json:
        from vicinal.labs.study.analysis.as_json import to_json

        typer.echo(json.dumps(to_json(found), indent=1, ensure_ascii=False))
    elif as_csv:
        typer.echo(_csv(found), nl=False)
    else:
        _show(found)
    if plots is not None:
        from vicinal.labs.report.making import short_names  # heavy
        from vicinal.labs.report.overlay import write_overlays

        first, second = short_names([before, after])
        names = (f"before, {first}", f"after, {second}")
        count = write_overlays(list(zip(names, results, strict=True)), plots)
        typer.echo(f"Written: {count} plots in {plots}", err=True)


def _csv(found: "ResultsCompared") -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for each in found.cells:
        estimates = (each.before, each.after, each.ratio)
        before, after, ratio = ((one.value, one.low, one.high) for one in estimates)
        table.writerow(
            (
                each.environment,
                each.workload,
                "" if each.size is None else each.size,
                each.statistic.value,
                each.unit,
                *before,
                *after,
                each.trials_before,
                each.trials_after,
                *ratio,
                each.p_value,
                each.p_corrected,
                each.verdict.value,
            )
        )
    return text.getvalue()


def _show(found: "ResultsCompared") -> None:
    from rich.markup import escape

    from vicinal.labs.study_commands.showing import console_of, table_of

    console = console_of()
    console.print(
        f"before  {escape(found.before)}, measured {escape(found.created_before)}", soft_wrap=True
    )
    console.print(
        f"after   {escape(found.after)}, measured {escape(found.created_after)}", soft_wrap=True
    )
    console.print()
    if found.differences:
        table = table_of("what differs", "before", "after")
        for difference in found.differences:
            table.add_row(
                escape(difference.what), escape(difference.before), escape(difference.after)
            )
        console.print(table)
    else:
        console.print("Machine, versions and study were the same.")
    console.print()
    table = table_of("environment", "workload", "size", "", "before", "after", "ratio", "")
    for each in found.cells:
        table.add_row(*map(escape, _row(each)))
    console.print(table)
    for side, labels in (("before", found.only_before), ("after", found.only_after)):
        if labels:
            console.print()
            console.print(f"Only {side}: {escape('; '.join(labels))}.", soft_wrap=True)
    for warning in found.warnings:
        console.print()
        console.print(f"Warning: {escape(warning)}", soft_wrap=True)
    console.print()
    console.print(
        "Ratios are after/before with their interval. Trials of two results are not pairs, so the "
        "ratios include all that changed between the two runs."
    )


def _row(each: "CellsCompared") -> tuple[str, ...]:
    from vicinal.labs.study.file.reading_sizes import show

    ratio = f"{each.ratio.value:.3f} ({each.ratio.low:.3f} to {each.ratio.high:.3f})"
    return (
        each.environment,
        each.workload,
        "" if each.size is None else show(each.size),
        each.statistic.value,
        f"{each.before.value:.4g} {each.unit}",
        f"{each.after.value:.4g} {each.unit}",
        ratio,
        each.verdict.value,
    )
