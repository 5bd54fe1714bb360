"""Whether a program of this host can run in virtual machines, whose image has little of Debian."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from vicinal.labs.study.file.model import Environment
from vicinal.labs.study.workloads.driver import Program
from vicinal.mpi.libfabric import linked_libraries
from vicinal.mpi.libraries import STANDARD, mpi_prefix

_IN_EVERY_IMAGE = (
    *("libc.so", "libutil.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "libresolv.so"),
    *("libgcc_s.so", "libz.so", "ld-linux"),
)
"""Beginnings of the libraries' names that come with what makes a guest start."""

_ABSOLUTE = re.compile(r"(?<![\w.])/[\w.+/-]+")
_NAMED = 3
_SHELLS = ("/bin/sh", "/usr/bin/env", "/usr/bin/taskset")
"""Which busybox is in the machines."""


def missing_in_guests(environment: Environment, program: Program) -> str | None:
    """Why a program would not start in an environment's virtual machines; None where it would.

    Where its file names packages or files for their image, it is taken to know what it does.
    """
    if "vm" not in environment.backends or _has_additions(environment):
        return None
    held = [mpi_prefix(mpi).resolve() for mpi in STANDARD]
    for command in (program.command, program.server):
        for path in _programs(command):
            # The first word's file is brought in; what its arguments name is not.
            wanted = [] if path == Path(command[0]) or _is_held(path, held) else [path.name]
            wanted += sorted(_libraries(path, held))
            if wanted and not str(path).startswith(_SHELLS):
                return (
                    f"{path} would need {_few(wanted)}, which virtual machines do not have: "
                    "name Debian's packages that bring it as image: {packages: [...]} of the "
                    "environment's cluster"
                )
    return None


def _programs(command: Sequence[str]) -> Iterable[Path]:
    """The first word, and programs that a script in the others names by their absolute paths."""
    if command:
        yield Path(command[0])
    for word in command[1:]:
        for found in _ABSOLUTE.findall(word):
            path = Path(found)
            if path.is_file() and os.access(path, os.X_OK):
                yield path


def _libraries(program: Path, held: Sequence[Path]) -> Iterable[str]:
    """Those that the machines lack."""
    for name, place in linked_libraries(program).items():
        if name.startswith(("libmpi", *_IN_EVERY_IMAGE)):
            continue
        if place is None or not _is_held(place, held):
            yield name


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_held(path: Path, held: Sequence[Path]) -> bool:
    return any(path.resolve().is_relative_to(each) for each in held)


def _has_additions(environment: Environment) -> bool:
    parts = (environment.cluster, *environment.cluster["nodes"])
    return any("image" in part for part in parts)
