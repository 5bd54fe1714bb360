"""The commands of `vicinal`: all parts' commands in one typer application."""

import importlib
from collections.abc import Sequence
from typing import Annotated

import typer

import vicinal
from vicinal.wrong_call import say_wrong_call

PARTS = {
    "vicinal.launch.commands": ("run",),
    "vicinal.launch.paths_command": ("paths",),
    "vicinal.cluster.commands": (
        *("plan", "up", "status", "exec", "ssh", "stop", "start"),
        *("save", "restore", "migrate", "down"),
    ),
    "vicinal.launch.environment_command": ("env",),
    "vicinal.region.commands": ("region",),
    "vicinal.launch.detach_command": ("region",),
    "vicinal.labs.bench.guest_commands": ("guests",),
    "vicinal.cluster.vm.image_commands": ("image",),
    "vicinal.host.vf.commands": ("vf",),
    "vicinal.integrations.opennebula.installation": ("opennebula",),
    "vicinal.integrations.slurm.commands": ("slurm",),
    "vicinal.labs.bench.commands": ("demo", "bench"),
    "vicinal.labs.study_commands.study": ("study",),
    "vicinal.labs.tune.report_command": ("study",),
    "vicinal.labs.tune.commands": ("tune",),
    "vicinal.doctor_command": ("doctor",),
}
"""The modules that register commands, in the order of the help, and the commands of each module."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vicinal {vicinal.__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Run MPI between the containers and virtual machines of one host at memory speed."""


def build_app(command: str | None = None) -> typer.Typer:
    """Return the command line of all parts, or of one command only, if there is such a command.

    Loading all parts takes half a second, and other programs make most of the calls.
    """
    app = typer.Typer(
        name="vicinal",
        callback=_top,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    needed = [part for part, names in PARTS.items() if command in names]
    for part in needed or PARTS:
        importlib.import_module(part).register(app)
    return app


def call(app: typer.Typer, words: Sequence[str]) -> int:
    """Run the words of a command line, and return the exit status. Raises VicinalError."""
    try:
        status = app(args=words, prog_name="vicinal", standalone_mode=False)
    except typer.TyperException as error:
        return say_wrong_call(error, words)
    return status if isinstance(status, int) else 0
