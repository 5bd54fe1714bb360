"""`vicinal study`: the command line of studies.

This module has `show`; each other command is a module of its own.
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
    str, typer.Argument(metavar="STUDY", help="Name of a study, or a study file of your own.")
]

Hosts = Annotated[list[str] | None, typer.Option(metavar="HOST", help=HOSTS)]

commands = typer.Typer(
    help="Measure what virtualization costs, beside what was published.", no_args_is_help=True
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
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print its file, whole.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print it as JSON as it would be run here, with nothing left to defaults.",
        ),
    ] = False,
    host: Hosts = None,
) -> None:
    """Show a study: question, environments, workloads, published figures, what is adapted here.

    What programs it needs is said by `vicinal study run`, before anything starts.
    """
    from vicinal.labs.study.file.adapt import adapt
    from vicinal.labs.study.file.json_form import study_to_json
    from vicinal.labs.study.file.machine import examine_machine
    from vicinal.labs.study.file.reading import whole_text
    from vicinal.labs.study.file.shipped import load_study, study_file
    from vicinal.labs.study_commands.showing import show_study

    if as_yaml and as_json:
        raise VicinalError("--yaml and --json are two forms", "give one of them")
    found = load_study(study)
    if as_yaml:
        typer.echo(whole_text(study_file(study)), nl=False)
        return
    adapted = adapt(found, examine_machine(host or ()))
    if as_json:
        typer.echo(json.dumps(study_to_json(adapted), indent=1, ensure_ascii=False))
    else:
        show_study(found, adapted)
