"""`vicinal study report`, which also shows results of searches: so it lies above both parts."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.directories import check_writable
from vicinal.base.errors import VicinalError
from vicinal.labs.study.result.layout import REPORT
from vicinal.labs.study_commands.study import commands


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal study`, which `app` already has."""
    del app
    commands.command(name="report")(report)


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Results of one study.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="Directory for the report. Default: report/ in the first folder."),
    ] = None,
    tuned: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="A result of `vicinal tune run` to show as well."),
    ] = None,
) -> None:
    """Write the report of a result, or one report of several results of the same study.

    The report is a page that needs no other file (report.html). It also has each plot as PNG and
    SVG, the whole text as Markdown (report.md), and CSV. Nothing is measured.
    """
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise VicinalError(
                f"{folder} is not a folder", "name a folder that `vicinal study run` has written"
            )
    directory = (output or folders[0] / REPORT).absolute()
    check_writable(directory, "name another directory with --output")
    # Loaded here: these modules and their imports are slow to load.
    from vicinal.labs.report.making import make_report
    from vicinal.labs.tune.outputs.searched import read_searched

    searches = [read_searched(folder) for folder in tuned or ()]
    typer.echo(f"Written: {make_report(folders, directory, searches).page}")
