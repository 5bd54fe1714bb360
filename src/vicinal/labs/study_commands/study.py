"""`vicinal study`: the command line of studies.

This module has `show`. Each other command has its own module.
"""

import json
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.plain_call import for_typer
from vicinal.labs.study_commands.compare import compare
from vicinal.labs.study_commands.list_command import HOSTS, list_
from vicinal.labs.study_commands.run import register as register_run

Study = Annotated[
    str, typer.Argument(metavar="STUDY", help="Name of a study, or your own study file.")
]

Hosts = Annotated[list[str] | None, typer.Option(metavar="HOST", help=HOSTS)]

commands = typer.Typer(
    help="Measure what virtualization costs, and compare it with published figures.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    commands.command(name="list")(for_typer(list_))
    commands.command()(show)
    register_run(commands)
    commands.command(name="compare")(compare)
    app.add_typer(commands, name="study")


def show(
    study: Study,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print the complete study file.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the study as JSON, as this machine would run it, with all defaults.",
        ),
    ] = False,
    host: Hosts = None,
) -> None:
    """Show a study: question, environments, workloads, published figures, and adaptations to this
    machine.

    `vicinal study run` says which programs the study needs, before anything starts.
    """
    from vicinal.labs.study.file.adapt import adapt
    from vicinal.labs.study.file.host_facts import examine_host
    from vicinal.labs.study.file.json_form import study_to_json
    from vicinal.labs.study.file.reading import whole_text
    from vicinal.labs.study.file.shipped import load_study, study_file
    from vicinal.labs.study_commands.showing import show_study

    if as_yaml and as_json:
        raise VicinalError("--yaml and --json were both given", "leave out one of them")
    found = load_study(study)
    if as_yaml:
        typer.echo(whole_text(study_file(study)), nl=False)
        return
    adapted = adapt(found, examine_host(host or ()))
    if as_json:
        typer.echo(json.dumps(study_to_json(adapted), indent=1, ensure_ascii=False))
    else:
        show_study(found, adapted)
