"""The commands of `vicinal`: all parts' commands in one typer application, and wrong calls.

Typer lets pydantic check values. Pydantic's messages ("Value error, ...", "Input should be ...")
are for programmers, and do not quote the user's word. So say_wrong_call() builds a message from
pydantic's findings: the option, the word, and the permitted values.
"""

import importlib
import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import vicinal
from vicinal.base.errors import fail
from vicinal.base.wording import in_quotes, one_of, suggestion

COMPLETE = "_VICINAL_COMPLETE"
"""Variable by which a shell asks for completions."""

PARTS = {
    "vicinal.launch.commands": ("run",),
    "vicinal.launch.paths_command": ("paths",),
    "vicinal.monitoring.top_command": ("top",),
    "vicinal.monitoring.metrics_command": ("metrics",),
    "vicinal.cluster.commands": (
        *("plan", "up", "status", "exec", "ssh", "stop", "start"),
        *("save", "restore", "migrate", "down"),
    ),
    "vicinal.launch.environment_command": ("env",),
    "vicinal.region.commands": ("region",),
    "vicinal.region.serve_command": ("region",),
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
_KINDS = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_parsing": "a number",
    "bool_parsing": "yes or no",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
}
"""The permitted values, by pydantic's name of the fault."""


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
    """Run the words of a command line, and return the exit status. Raises VicinalError.

    If a shell asks how a command line may go on (scripts/completion.py), the answer is printed.
    """
    if COMPLETE in os.environ:
        from typer.completion import completion_init

        completion_init()
    try:
        status = app(args=words, prog_name="vicinal", standalone_mode=False)
    except typer.TyperException as error:
        return say_wrong_call(error, words)
    return status if isinstance(status, int) else 0


def say_wrong_call(error: typer.TyperException, words: Sequence[str]) -> int:
    """Print what is wrong with a command line, and return the exit status 2.

    A group of commands that is called without a command prints its help instead.
    """
    context = getattr(error, "ctx", None)
    if not error.format_message():  # typer has already printed the group's help
        return 2
    if context is not None and _lacks_command(error, context):
        context.get_help()  # prints the help
        return 2
    command = context.command_path if context is not None else _command_of(words)
    return fail(f"{_sentence(error)}: see `{command} --help`", 2)


def _command_of(words: Sequence[str]) -> str:
    """The command of a call for which typer gives no context: `vicinal down`."""
    return " ".join(["vicinal", *takewhile(str.isalpha, words[:1])])


def _lacks_command(error: typer.TyperException, context: Any) -> bool:
    return isinstance(context.command, TyperGroup) and error.message == "Missing command."


def _sentence(error: typer.TyperException) -> str:
    faults = getattr(error.__cause__, "errors", None)
    parameter = getattr(error, "param", None)
    if callable(faults) and parameter is not None and (found := faults()):
        return _complaint(parameter, found[0])
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}"


def _complaint(parameter: Any, fault: Mapping[str, Any]) -> str:
    facts = fault.get("ctx", {})
    inner = getattr(facts.get("error"), "errors", None)
    if callable(inner):  # the error of one value in a list
        return _complaint(parameter, inner()[0])
    name = parameter.get_error_hint().replace("'", "").replace(" / ", "/")
    beginning = f"{name} is {in_quotes(fault['input'])}"
    if choices := _choices(parameter):
        guess = suggestion(str(fault["input"]), choices)
        return f"{beginning}, and must be {one_of(choices)}" + (f": {guess}" if guess else "")
    if fault["type"] in _KINDS:
        return f"{beginning}, and must be {_KINDS[fault['type']].format(**facts)}"
    return f"{beginning}: {facts.get('error', fault['msg'])}"


def _choices(parameter: Any) -> Sequence[str]:
    choices = parameter.type_descriptor.choices or ()
    return [str(getattr(each, "value", each)) for each in choices]
