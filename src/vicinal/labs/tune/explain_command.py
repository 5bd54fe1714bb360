"""`vicinal tune explain`: the result of a search for people."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.labs.tune.options import AsJson


def explain(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A result folder of `vicinal tune run`.")
    ],
    as_json: AsJson = False,
) -> None:
    """Explain what a search found, why, how certain it is, and how to apply it."""
    from vicinal.labs.tune.measuring.folder import read_result

    result = read_result(folder)
    if as_json:
        typer.echo(json.dumps(result, indent=1, ensure_ascii=False))
        return
    show_result(result)


def show_result(result: Mapping[str, Any]) -> None:
    """Write a result for people."""
    typer.echo(f"{result['name']}: {result['title']}")
    for line in result["explanation"]:
        typer.echo(line)
    typer.echo()
    if not result["instructions"]:
        typer.echo("There is nothing to apply: no better setting was found.")
    for each in result["instructions"]:
        of_all = len(each["phases"]) == len(result["phases"])
        phases = ", ".join(each["phases"])
        typer.echo("To apply it:" if of_all else f"To apply the setting of {phases}:")
        if each["command"]:
            typer.echo(f"  {each['command']}")
        for line in each["shell"]:
            typer.echo(f"  {line}")
