"""Runs the command `vicinal` for the tests, each time in a fork of a process that imported it.

The import takes half a second, twenty times as long as most commands. A request is a line of JSON
on stdin: arguments, directory, environment, and files for the output. The first answer is the
process number of the fork. The second is its exit status, when the fork has ended.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import sys
from typing import Any

from vicinal.cli import main, run
from vicinal.command_app import PARTS


def become(request: dict[str, Any]) -> None:
    """Take on the process group, directory, environment and streams of a new command."""
    os.setpgid(0, 0)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
        mode = os.O_RDONLY if number == 0 else os.O_WRONLY
        opened = os.open(name, mode)
        os.dup2(opened, number)
        os.close(opened)


def answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def serve() -> list[str]:
    """Answer requests until the input ends. Returns in each fork, with the fork's arguments."""
    # A command imports only its own part. Import all parts here, and typer by a first call.
    for part in PARTS:
        importlib.import_module(part)
    with contextlib.redirect_stderr(io.StringIO()):
        run(["region", "show", os.devnull])
    gc.freeze()  # garbage collections of forks need not visit imported objects
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request)
            arguments: list[str] = request["arguments"]
            return arguments
        answer(child)
        _, status = os.waitpid(child, 0)
        answer(os.waitstatus_to_exitcode(status))
    sys.exit()


if __name__ == "__main__":
    main(serve())
