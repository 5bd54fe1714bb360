"""Parses command lines by a function's parameters, without loading typer or with typer.

    def region(job: Annotated[int, Argument("The job's number.", min=1)],
               directory: Annotated[Path, Option("Where regions are.")] = DEFAULT) -> None: ...

A correct call runs without typer. For any other call, `--help` included, typer parses the same
words by the same parameters, and prints the error or the help. A parameter of type bool is an
option without a value. Only typer parses options of type list, which may be repeated.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Option:
    """A parameter that is given by name: --like-this VALUE."""

    help: str
    metavar: str | None = None
    min: int | None = None
    name: str | None = None
    """The option's name, such as `--json`, if it differs from the parameter's name."""


class Argument(Option):
    """A parameter that is given by position."""


class NotInOrderError(Exception):
    """The words need typer, which prints the help or an error message."""


def for_typer(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return the same function with parameters in typer's form."""
    import typer

    def called(**values: Any) -> int | None:
        return function(**values)

    signature = inspect.signature(function)
    parameters = []
    for each in signature.parameters.values():
        kind, word = get_args(each.annotation)
        names = [] if word.name is None else [word.name]
        make = typer.Argument if isinstance(word, Argument) else typer.Option
        words = make(*names, help=word.help, metavar=word.metavar, min=word.min)
        parameters.append(each.replace(annotation=Annotated[kind, words]))
    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def values_of(function: Callable[..., int | None], words: Sequence[str]) -> dict[str, object]:
    """Return the value of each parameter, by name. Raises NotInOrderError if typer must parse the
    words."""
    parameters = inspect.signature(function).parameters
    arguments = [name for name, each in parameters.items() if isinstance(_word(each), Argument)]
    named = {
        _word(each).name or f"--{name.replace('_', '-')}": name
        for name, each in parameters.items()
        if name not in arguments
    }
    found: dict[str, object] = {}
    left = iter(words)
    for word in left:
        option, equals, text = word.partition("=")
        if option in named:
            name = named[option]
            if _kind(parameters[name]) is bool:
                value = "" if not equals else "-"
            else:
                value = text if equals else next(left, "-")
        elif arguments:
            name, value = arguments.pop(0), word
        else:
            raise NotInOrderError
        if name in found or value.startswith("-"):
            raise NotInOrderError
        found[name] = _converted(parameters[name], value)
    for name, each in parameters.items():
        if name not in found and each.default is inspect.Parameter.empty:
            raise NotInOrderError
    return found


def _converted(parameter: inspect.Parameter, text: str) -> object:
    kind, word = _kind(parameter), _word(parameter)
    if kind is bool:
        return True
    if get_origin(kind) is list:
        raise NotInOrderError
    if kind is not int:
        value: object = kind(text)
        return value
    if not _NUMBER.fullmatch(text) or (word.min is not None and int(text) < word.min):
        raise NotInOrderError
    return int(text)


def _kind(parameter: inspect.Parameter) -> Any:
    kind = get_args(parameter.annotation)[0]
    # For example `int | None`.
    return get_args(kind)[0] if get_origin(kind) is UnionType else kind


def _word(parameter: inspect.Parameter) -> Option:
    word: Option = get_args(parameter.annotation)[1]
    return word
