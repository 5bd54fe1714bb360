"""The programs of programs/: making, running and reading them.

The Makefile makes one binary for each MPI library. The sources are plain MPI and know nothing of
Vicinal; memory.c does without MPI. Each program prints one JSON object a line.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vicinal.base.directories import may_write
from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.mpi.environment import Mpi, checkout


def mpi_program(mpi: Mpi, name: str) -> Path:
    """Path of a program made with the compiler of an MPI library; made anew if out of date.

    Raises VicinalError if it cannot be made.
    """
    return _made(f"{name}.c", Path(mpi.value, name))


def fabric_program(name: str) -> Path:
    """Path of a program that uses libfabric and no MPI; made anew if out of date."""
    return _made(f"fabric/{name}.c", Path("fabric", name))


def _made(source: str, program: Path) -> Path:
    tree = checkout()
    if tree is None or not (tree / "programs" / source).is_file():
        raise VicinalError(
            f"the program {program.name} is not part of an installed package",
            "run this from a checkout of Vicinal",
        )
    target = Path("build", "programs") / program
    directory = tree / "build" / "programs"
    # Mostly there is nothing to be made, and no need to wait for a command that makes something,
    # or stands still in the middle of that.
    if _make(tree, target, "--question").returncode == 0:
        return tree / target
    if not may_write(directory):  # somebody else's checkout
        raise VicinalError(
            f"{tree / target} is missing or out of date, and this user may not make it",
            f"have the owner of {tree} run `make`, or work in a checkout of your own",
        )
    with locked(directory):
        made = _make(tree, target)
    if made.returncode != 0:
        lines = made.stderr.strip().splitlines() or ["no message"]
        first = next((line for line in lines if "error" in line), lines[-1])
        raise VicinalError(f"{target} could not be made: {first}", f"run `make {target}` in {tree}")
    return tree / target


def _make(tree: Path, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # Not under the make that may have started us: its job server is closed to us.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        ["make", "--quiet", "--directory", str(tree), *options, str(target)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def memory_program() -> Path:
    """Path of the program that measures the machine's limits; it uses no MPI."""
    return mpi_program(Mpi.MPICH, "memory")


def run_program(
    command: Sequence[str],
    timeout: float,
    *,
    failed: str,
    late: str,
    remedy: str,
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Run a program that is no MPI job on this host to its end; return what it printed.

    Raises VicinalError if it fails: `failed` with the last line of its standard error instead of
    `{}`, and `remedy`. If the program runs longer than `timeout` seconds, the message is `late`.
    """
    try:
        done = subprocess.run(
            command,
            env=os.environ | (variables or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise VicinalError(late, "free the machine and try again") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise VicinalError(failed.format(lines[-1]), remedy)
    return read_records(done.stdout)


def read_records(text: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines of a job's output; an MPI may print others."""
    records = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise VicinalError(
                    f"a measuring program printed a broken line ({line[:60]!r})",
                    "run it again; if it happens again, report it",
                ) from error
    return records


def first_words(text: str) -> str:
    """The first line of an output that has a letter in it; empty if no line has."""
    lines = (line.strip() for line in text.splitlines() if any(map(str.isalpha, line)))
    return next(lines, "")
