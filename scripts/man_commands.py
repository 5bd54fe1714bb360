#!/usr/bin/env python3
"""Fill in the commands of a man page from the descriptions in the command line itself.

Reads scdoc with a line `@COMMANDS@` from standard input, and writes scdoc to standard output.
"""

import re
import sys
from collections.abc import Iterator
from typing import Any

import typer

from vicinal.command_app import build_app


def commands(group: Any, path: str, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every command below a group, with its full name and its context."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        inner = type(context)(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ", inner)
        else:
            yield f"{path}{name}", command, inner


def escape(text: str) -> str:
    """Text that scdoc prints unchanged."""
    return re.sub(r"([\\*_`~])", r"\\\1", text)


def placeholder(parameter: Any, context: Any) -> str:
    """The word for an option's value: its metavar, its choices or a word for its type."""
    if parameter.metavar:
        return str(parameter.metavar)
    shown: str = parameter.display_type(context).strip("<>").removeprefix("list[").rstrip("]")
    words = {"int": "NUMBER", "float": "NUMBER", "path": "PATH", "str": "TEXT"}
    return words.get(shown.removesuffix(" range"), shown)


def option(parameter: Any, context: Any) -> str:
    """An option as users write it: `*--members* _INT_`, `*--cma*, *--no-cma*`."""
    names = [*parameter.opts, *parameter.secondary_opts]
    written = ", ".join(f"*{escape(name)}*" for name in names)
    if parameter.is_flag:
        return written
    return f"{written} _{escape(placeholder(parameter, context))}_"


def describe(name: str, command: Any, context: Any) -> Iterator[str]:
    """One command in scdoc."""
    synopsis = [f"vicinal {name}"]
    options = [each for each in command.params if each.param_type_name == "option"]
    if options:
        synopsis.append("[OPTION]...")
    for argument in command.params:
        if argument.param_type_name == "argument":
            shown = escape(argument.metavar or argument.name.upper())
            if not argument.required and not shown.startswith("["):
                shown = f"[{shown}]" + ("..." if argument.nargs == -1 else "")
            synopsis.append(shown)
    yield f"## {' '.join(synopsis)}"
    yield ""
    yield escape(" ".join((command.help or "").split()))
    yield ""
    for each in options:
        if "--help" in each.opts:
            continue
        text = " ".join((each.help or "").split())
        if each.required:
            text += " Required."
        elif each.default not in (None, False, True, (), "") and "default" not in text.lower():
            text += f" Default: {getattr(each.default, 'value', each.default)}."
        yield option(each, context)
        yield f"\t{escape(text)}"
        yield ""


def main() -> None:
    """Read the page, and write it with its commands."""
    top = typer.main.get_command(build_app())
    context = top.make_context("vicinal", ["region"], resilient_parsing=True)
    text = "\n".join(line for each in commands(top, "", context) for line in describe(*each))
    sys.stdout.write(sys.stdin.read().replace("@COMMANDS@\n", text))


if __name__ == "__main__":
    main()
