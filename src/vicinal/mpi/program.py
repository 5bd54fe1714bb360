"""The program of a job: whether it can be started, and the MPI it was built with."""

import mmap
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.mpi.libfabric import linked_libraries
from vicinal.mpi.libraries import STANDARD_INTERFACE, Family, Installation, Mpi

_ELF = b"\x7fELF"

_LIBRARIES = {
    "libmpi.so.12": Mpi.MPICH,
    "libmpich.so.12": Mpi.MPICH,
    STANDARD_INTERFACE: Mpi.MPICH,
    "libmpi.so.40": Mpi.OPENMPI,
}
"""Beginnings of library names that show a program's MPI, and the MPI to use if the loader finds no
such library."""

_COMPILERS = {
    ".c": "mpicc",
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".C"), "mpicxx"),
    **dict.fromkeys((".f", ".F", ".f90", ".F90", ".f08"), "mpifort"),
}
"""Compilers by the suffix of a source file."""
_INTERPRETERS = {".py": "python3", ".sh": "sh", ".pl": "perl", ".jl": "julia", ".R": "Rscript"}

_INSIDE = {b"\0MPIR_Process\0": Mpi.MPICH, b"\0ompi_mpi_init\0": Mpi.OPENMPI}
"""Symbols of an MPI that was linked into a program statically, unless the program was stripped."""

_ONE_INTERFACE = ({Family.MPICH, Family.INTEL}, {Family.OPENMPI})
"""Sets of families with one binary interface: a program of one family runs with the other."""

HIDDEN = (Path("/dev/shm"), Path("/run"))
"""Directories that each node has for itself."""


def find_program(name: str, *, anywhere: bool = False) -> Path:
    """Return the absolute path of a program, as a shell would find it.

    Raises VicinalError if there is none, or if nodes could not start it. With `anywhere` the
    program is not for nodes, and may be in a directory that nodes have for themselves.
    """
    if not name:
        raise VicinalError(
            "the program has no name", "check that the variable with its name is set"
        )
    found = Path(name) if "/" in name else Path(shutil.which(name) or name)
    if not found.exists():
        where = "" if "/" in name else " in $PATH"
        remedy = "check the name" if "/" in name else f"for a file in this directory write ./{name}"
        raise VicinalError(f"there is no program {name}{where}", remedy)
    if not found.is_file():
        raise VicinalError(f"{name} is not a program but a directory", "name a file in it")
    if not os.access(found, os.X_OK):
        raise VicinalError(f"{name} is not executable", _how_to_run(found, name))
    # Links are not resolved, because a virtual environment's python depends on the name of the
    # link.
    absolute = found.absolute()
    if not anywhere:
        check_visible(absolute)
    return absolute


def _how_to_run(file: Path, name: str) -> str:
    """The remedy for a file that is not executable; for source code, permissions do not help."""
    compiler = _COMPILERS.get(file.suffix)
    if compiler is not None:
        built = name.removesuffix(file.suffix)
        return f"the file is source code; compile it: {compiler} {name} -o {built}"
    if file.suffix in _INTERPRETERS:
        return f"name its interpreter: {_INTERPRETERS[file.suffix]} {name}"
    if _may_be_program(file):
        return f"make it executable: chmod +x {name}"
    return "name a program, or a script that begins with #!"


def _may_be_program(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            return content.read(4).startswith((b"\x7fELF", b"#!"))
    except OSError:
        return True  # unreadable: the file may be a program


def check_visible(
    path: Path,
    hidden: Sequence[Path] = HIDDEN,
    shown: Sequence[Path] = (),
    remedy: str = "put it into another directory",
) -> None:
    """Raise VicinalError if nodes have another directory at `path`.

    Nodes have the directories `hidden` for themselves, except everything below the directories
    `shown`.
    """
    resolved = path.resolve()
    if any(resolved.is_relative_to(each) for each in shown):
        return
    for own in hidden:
        if resolved.is_relative_to(own):
            raise VicinalError(f"the nodes cannot see {path}: each node has its own {own}", remedy)


def linked_mpi(program: Path) -> tuple[Mpi, Path | None] | None:
    """Return the MPI that a program is linked with, and its library if the loader finds it.

    None for scripts and for programs that load their MPI later, such as Python.
    """
    found = _linked_library(program)
    return None if found is None else (found[0], found[2])


def check_same_mpi(command: Sequence[str], chosen: Installation) -> None:
    """Raise VicinalError if a program is linked with another MPI than the MPI that is to start it.

    For a wrapper, such as `env` or `numactl`, the program among its arguments is checked. A program
    that shows no MPI, such as a script, passes.
    """
    for word in command:
        program = Path(word)
        if word != command[0] and not _is_program(program):
            continue
        found = _linked_library(program)
        mpi = found[0] if found is not None else _mpi_inside(program)
        if mpi is None:
            continue
        if found is not None and found[1].startswith(STANDARD_INTERFACE):
            if any(chosen.library.parent.glob(f"{STANDARD_INTERFACE}*")):
                return
            raise VicinalError(
                f"{program} is linked with {found[1]}, the standard's own binary interface, and "
                f"{chosen.full_name} does not have it",
                "choose an MPI that has it, such as MPICH 5, or compile the program with "
                f"{chosen.launcher.parent / 'mpicc'}",
            )
        if any({mpi.family, chosen.family} <= each for each in _ONE_INTERFACE):
            return
        raise VicinalError(
            f"{program} is linked with {mpi.family.full_name}, and {chosen.full_name} was chosen "
            "to start the program",
            f"choose --mpi {mpi}, or name a program that was built with {chosen.full_name}",
        )


def _linked_library(program: Path) -> tuple[Mpi, str, Path | None] | None:
    """The MPI that a program is linked with, the name of the MPI's library, and the library's
    path."""
    for library, path in linked_libraries(program).items():
        for beginning, mpi in _LIBRARIES.items():
            if library.startswith(beginning):
                return mpi, library, path
    return None


def _is_program(path: Path) -> bool:
    """Whether an argument is the path of a binary program instead of a word or a script."""
    if "/" not in str(path) or not path.is_file() or not os.access(path, os.X_OK):
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF
    return False


def _mpi_inside(program: Path) -> Mpi | None:
    """The MPI that is linked into a program statically."""
    with (
        suppress(OSError, ValueError),  # the program cannot be read, or is empty
        program.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[: len(_ELF)] == _ELF:
            return next((mpi for name, mpi in _INSIDE.items() if content.find(name) >= 0), None)
    return None
