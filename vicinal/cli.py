"""The command `vicinal`: puts its parts together and turns errors into one clear line."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import vicinal
from vicinal.errors import VicinalError, describe_os_error
from vicinal.signals import Ended, signals_raise

PARTS = {
    "vicinal.launch.commands": ("run", "paths"),
    "vicinal.cluster.manage_commands": (
        *("plan", "up", "status", "exec", "ssh", "stop", "start"),
        *("save", "restore", "migrate", "down"),
    ),
    "vicinal.launch.environment_command": ("env",),
    "vicinal.region.commands": ("region",),
    "vicinal.launch.detach_command": ("region",),
    "vicinal.cluster.commands": ("guests",),
    "vicinal.cluster.image_commands": ("image",),
    "vicinal.host.functions.commands": ("functions",),
    "vicinal.opennebula.commands": ("opennebula",),
    "vicinal.slurm.commands": ("slurm",),
    "vicinal.bench.commands": ("demo", "bench"),
    "vicinal.study.commands": ("study",),
    "vicinal.tune.commands": ("tune",),
    "vicinal.doctor_command": ("doctor",),
}
"""The modules that register commands, in the order of the help, and the commands of each."""


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
    """The command line, made of what each part registers: all, or the one command if there is it.

    To load all parts takes half a second, and most calls are by other programs.
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 done, 1 an error, 2 a wrong call, 130 interrupted."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; errors are one line on stderr."""
    try:
        with signals_raise():
            words = sys.argv[1:] if arguments is None else list(arguments)
            app = build_app(words[0] if words else None)
            status = app(args=words, prog_name="vicinal", standalone_mode=False)
            sys.stdout.flush()
    except VicinalError as error:
        return _fail(str(error))
    except typer.TyperException as error:
        return _wrong_call(error)
    except Ended as ended:
        return ended.status
    except ModuleNotFoundError as error:
        # Where the libraries of some commands were left out, such as in the appliance.
        return _fail(
            f"this command needs the Python library {error.name}, which is not installed: "
            f"install it, in Debian as the package python3-{error.name}"
        )
    except BrokenPipeError:
        # The reader, such as `head`, went away: not an error of ours. Python would
        # complain when it flushes stdout at exit, so give it another one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if not error.filename and _is_directory_gone():
            return _fail("the current directory is there no more: change to another one")
        place = f"{error.filename}: " if error.filename else ""
        return _fail(
            f"{place}{describe_os_error(error)}: see that the file and its rights are right"
        )
    return status if isinstance(status, int) else 0


def _is_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _fail(line: str, status: int = 1) -> int:
    typer.echo(f"vicinal: error: {' '.join(line.split())}", err=True)
    return status


def _wrong_call(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "vicinal"
    message = error.format_message().rstrip(".")
    if not message:  # a group without a command, which has shown its help instead
        return 2
    return _fail(f"{message[:1].lower()}{message[1:]}: see `{command} --help`", 2)
