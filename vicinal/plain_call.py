"""Commands that other programs call: read from a function's parameters, with typer and without.

    def region(job: Annotated[int, Argument("The job's number.", min=1)],
               directory: Annotated[Path, Option("Where regions are.")] = DEFAULT) -> None: ...

A call that is in order is done without typer. With anything else, be it `--help`, typer reads the
same words by the same parameters, and says what is wrong, or helps.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

PLAIN = {
    ("slurm", "region"): "vicinal.slurm.region_commands",
    ("slurm", "sweep"): "vicinal.slurm.region_commands",
    ("slurm", "functions"): "vicinal.slurm.function_commands",
    ("slurm", "lend"): "vicinal.slurm.function_commands",
    ("slurm", "release"): "vicinal.slurm.function_commands",
    ("slurm", "network"): "vicinal.slurm.network_commands",
}
"""Commands, and the modules that have functions of their names."""

_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Option:
    """A parameter that is named: --like-this VALUE."""

    help: str
    metavar: str | None = None
    min: int | None = None


class Argument(Option):
    """A parameter that is known by its place."""


class _NotInOrderError(Exception):
    """Typer says what it is."""


def plain_call(words: Sequence[str]) -> Callable[[], None] | None:
    """What the words of a command line ask for; None where that is for typer to find out."""
    place = PLAIN.get((words[0], words[1])) if len(words) > 1 else None
    if place is None:
        return None
    function = getattr(importlib.import_module(place), words[1])
    try:
        values = _values(function, words[2:])
    except _NotInOrderError:
        return None
    return lambda: function(**values)


def for_typer(function: Callable[..., None]) -> Callable[..., None]:
    """The same function, with parameters as typer wants them."""
    import typer

    def called(**values: Any) -> None:
        function(**values)

    signature = inspect.signature(function)
    parameters = []
    for each in signature.parameters.values():
        kind, word = get_args(each.annotation)
        make = typer.Argument if isinstance(word, Argument) else typer.Option
        words = make(help=word.help, metavar=word.metavar, min=word.min)
        parameters.append(each.replace(annotation=Annotated[kind, words]))
    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def _values(function: Callable[..., None], words: Sequence[str]) -> dict[str, object]:
    parameters = inspect.signature(function).parameters
    places = [name for name, each in parameters.items() if isinstance(_word(each), Argument)]
    named = {f"--{name.replace('_', '-')}": name for name in parameters if name not in places}
    found: dict[str, object] = {}
    left = iter(words)
    for word in left:
        option, equals, text = word.partition("=")
        if option in named:
            name, value = named[option], text if equals else next(left, "-")
        elif places:
            name, value = places.pop(0), word
        else:
            raise _NotInOrderError
        if name in found or value.startswith("-"):
            raise _NotInOrderError
        found[name] = _converted(parameters[name], value)
    for name, each in parameters.items():
        if name not in found and each.default is inspect.Parameter.empty:
            raise _NotInOrderError
    return found


def _converted(parameter: inspect.Parameter, text: str) -> object:
    kind, word = get_args(parameter.annotation)
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]  # as in `int | None`
    if kind is not int:
        value: object = kind(text)
        return value
    if not _NUMBER.fullmatch(text) or (word.min is not None and int(text) < word.min):
        raise _NotInOrderError
    return int(text)


def _word(parameter: inspect.Parameter) -> Option:
    word: Option = get_args(parameter.annotation)[1]
    return word
