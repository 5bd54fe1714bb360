"""Finds third-party programs, where the user says or on this machine, and their MPI library."""

import shutil
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.labs.study.workloads.driver import Tools
from vicinal.mpi.libraries import Family, Mpi
from vicinal.mpi.program import find_program, linked_mpi

USER_TOOLS = {
    "osu": "the OSU micro-benchmarks: their directory, or one above it",
    "imb": "the Intel MPI benchmarks: the directory with IMB-MPI1 in it, or one above it",
    "npb": "the NAS parallel benchmarks: the directory of their binaries (is.B.8), or one above it",
    "graph500": "Graph500's reference code: the directory of its binaries, or one above it",
    "hpcc": "the program hpcc, if it is not Debian's",
    "lammps": "LAMMPS' program lmp, if it is not Debian's",
    "perftest": "the directory of ib_send_lat and the other programs, if it is not /usr/bin",
}
"""What users can locate by an option (`--with-osu PATH`), by the names of Tools.paths."""

_DEPTH = 6
_FILES_MAX = 20_000


def debian_program(tools: Tools, tool: str, name: str, package: str) -> Path:
    """A program at the path that the user named, or from Debian's package.

    Raises VicinalError if the program is not there.
    """
    if tool in tools.paths:
        return user_program(tools, tool, (name,))
    found = shutil.which(name)
    if found is None:
        with_option = f", or name its path with --with-{tool} PATH" if tool in USER_TOOLS else ""
        raise VicinalError(
            f"there is no program {name} on this machine",
            f"install Debian's package {package}{with_option}",
        )
    return find_program(found)


def user_program(tools: Tools, tool: str, names: tuple[str, ...], mpi: Mpi | None = None) -> Path:
    """The first of these programs at the path that the user named, or below it.

    With `mpi`, the program must be linked with a library of the same family. Raises VicinalError if
    there is no such program.
    """
    path = tools.paths.get(tool)
    if path is None:
        raise VicinalError(
            f"neither Vicinal nor Debian contains {names[0]}",
            f"build it, and name its path with --with-{tool} PATH ({USER_TOOLS[tool]})",
        )
    found = _below(path, names)
    if not found:
        raise VicinalError(
            f"there is no program {names[0]} in {path}",
            f"give --with-{tool} {USER_TOOLS[tool]}",
        )
    refusal: VicinalError | None = None
    for program in found:
        try:
            if mpi is not None:
                check_family(program, mpi)
            return find_program(str(program))
        except VicinalError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def check_family(program: Path, mpi: Mpi) -> None:
    """Raise VicinalError if a program cannot run with an MPI library.

    MPICH and Intel MPI have one binary interface, and so has Open MPI from version 4 on.
    """
    linked = linked_mpi(program)
    if linked is not None and (linked[0].family is Family.OPENMPI) != (
        mpi.family is Family.OPENMPI
    ):
        raise VicinalError(
            f"{program} is linked with {linked[0].family.full_name}, but the environment uses "
            f"{mpi.full_name}",
            f"give the environment another MPI, such as mpi: {_for(linked[0])}",
        )


def _for(mpi: Mpi) -> str:
    debian = mpi.family is Family.OPENMPI
    return f"{Mpi.OPENMPI_DEBIAN.value} or {Mpi.OPENMPI.value}" if debian else mpi.value


def _below(path: Path, names: tuple[str, ...]) -> list[Path]:
    """Executable files of these names at a path or below it, sorted by the order of the names."""
    if path.is_file():
        return [path]
    found: dict[str, list[Path]] = {name: [] for name in names}
    seen = 0
    level = [path]
    for _ in range(_DEPTH):
        inner: list[Path] = []
        for directory in level:
            for entry in _entries(directory):
                seen += 1
                if entry.name in found and entry.is_file():
                    found[entry.name].append(entry)
                elif entry.is_dir() and not entry.is_symlink():
                    inner.append(entry)
        if seen > _FILES_MAX:
            break
        level = inner
    return [path for name in names for path in found[name]]


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
