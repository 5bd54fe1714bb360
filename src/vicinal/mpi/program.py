"""The program of a job: whether it can be started, and which MPI it was built with."""

import mmap
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.mpi.libfabric import linked_libraries
from vicinal.mpi.libraries import Family, Installation, Mpi

_ELF = b"\x7fELF"

_LIBRARIES = {
    "libmpi.so.12": Mpi.MPICH,
    "libmpich.so.12": Mpi.MPICH,
    "libmpi_abi.so": Mpi.MPICH,
    "libmpi.so.40": Mpi.OPENMPI,
}
"""Beginnings of library names by which a program shows its MPI, and the one to take for it
where the loader finds none."""

_COMPILERS = {
    ".c": "mpicc",
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".C"), "mpicxx"),
    **dict.fromkeys((".f", ".F", ".f90", ".F90", ".f08"), "mpifort"),
}
"""What makes programs of source code, by the ends of its names."""
_INTERPRETERS = {".py": "python3", ".sh": "sh", ".pl": "perl", ".jl": "julia", ".R": "Rscript"}

_INSIDE = {b"\0MPIR_Process\0": Mpi.MPICH, b"\0ompi_mpi_init\0": Mpi.OPENMPI}
"""Symbols by which a program shows an MPI that was linked into it, unless it was stripped."""

_ONE_INTERFACE = ({Family.MPICH, Family.INTEL}, {Family.OPENMPI})
"""Families of which a program can be linked with one and run by the other."""

_STANDARD_INTERFACE = "libmpi_abi.so"
"""Beginning of the library's name that is the same for each MPI which has it."""

HIDDEN = (Path("/dev/shm"), Path("/run"))
"""Directories of which each node has its own."""


def find_program(name: str, *, anywhere: bool = False) -> Path:
    """The absolute path of a program, as a shell would find it.

    Raises VicinalError where there is none, or nodes could not start it; with `anywhere` it
    is for no nodes, and may lie where those see another directory.
    """
    if not name:
        raise VicinalError("the program has no name", "see that the variable that names it is set")
    found = Path(name) if "/" in name else Path(shutil.which(name) or name)
    if not found.exists():
        where = "" if "/" in name else " in $PATH"
        remedy = "check the name" if "/" in name else f"for a file in this directory write ./{name}"
        raise VicinalError(f"there is no program {name}{where}", remedy)
    if not found.is_file():
        raise VicinalError(f"{name} is not a program but a directory", "name a file in it")
    if not os.access(found, os.X_OK):
        raise VicinalError(f"{name} is not executable", _how_to_run(found, name))
    # Not resolved further: a virtual environment's python goes by the name it is called.
    absolute = found.absolute()
    if not anywhere:
        check_visible(absolute)
    return absolute


def _how_to_run(file: Path, name: str) -> str:
    """What to do with a file that is not executable: for source code, no permission helps."""
    compiler = _COMPILERS.get(file.suffix)
    if compiler is not None:
        built = name.removesuffix(file.suffix)
        return f"it is source code, compile it: {compiler} {name} -o {built}"
    if file.suffix in _INTERPRETERS:
        return f"name its interpreter: {_INTERPRETERS[file.suffix]} {name}"
    if _may_be_program(file):
        return f"allow it: chmod +x {name}"
    return "name a program: this is neither one nor a script that begins with #!"


def _may_be_program(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            return content.read(4).startswith((b"\x7fELF", b"#!"))
    except OSError:
        return True  # what it is cannot be seen


def check_visible(
    path: Path,
    hidden: Sequence[Path] = HIDDEN,
    shown: Sequence[Path] = (),
    remedy: str = "put it into another directory",
) -> None:
    """Raise VicinalError where nodes see another directory in this one's place.

    They have `hidden` for themselves, but for what is below one of `shown`.
    """
    resolved = path.resolve()
    if any(resolved.is_relative_to(each) for each in shown):
        return
    for own in hidden:
        if resolved.is_relative_to(own):
            raise VicinalError(
                f"{path} cannot be seen by the nodes, each of which has its own {own}", remedy
            )


def linked_mpi(program: Path) -> tuple[Mpi, Path | None] | None:
    """Which MPI a program is linked with, and its library, if the loader finds it.

    None for scripts and for programs that load their MPI later, such as Python.
    """
    found = _linked_library(program)
    return None if found is None else (found[0], found[2])


def check_same_mpi(command: Sequence[str], chosen: Installation) -> None:
    """Raise VicinalError where the MPI in a program is another than the one to start it.

    Of a wrapper, such as `env` or `numactl`, it is the program that its arguments name. What
    shows no MPI at all, such as a script, is let through.
    """
    for word in command:
        program = Path(word)
        if word != command[0] and not _is_program(program):
            continue
        found = _linked_library(program)
        mpi = found[0] if found is not None else _mpi_inside(program)
        if mpi is None:
            continue
        if found is not None and found[1].startswith(_STANDARD_INTERFACE):
            if any(chosen.library.parent.glob(f"{_STANDARD_INTERFACE}*")):
                return
        elif any({mpi.family, chosen.family} <= each for each in _ONE_INTERFACE):
            return
        raise VicinalError(
            f"{program} is linked with {mpi.family.full_name}, and {chosen.full_name} was chosen "
            "to start it",
            f"choose --mpi {mpi}, or name a program that was built with {chosen.full_name}",
        )


def _linked_library(program: Path) -> tuple[Mpi, str, Path | None] | None:
    """The MPI that a program is linked with, the name of its library, and where that is."""
    for library, place in linked_libraries(program).items():
        for beginning, mpi in _LIBRARIES.items():
            if library.startswith(beginning):
                return mpi, library, place
    return None


def _is_program(path: Path) -> bool:
    """Whether an argument is the path of a binary program, and not a word or a script."""
    if "/" not in str(path) or not path.is_file() or not os.access(path, os.X_OK):
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF
    return False


def _mpi_inside(program: Path) -> Mpi | None:
    """The MPI that is part of a program, linked statically."""
    with (
        suppress(OSError, ValueError),  # it cannot be read, or is empty
        program.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[: len(_ELF)] == _ELF:
            return next((mpi for name, mpi in _INSIDE.items() if content.find(name) >= 0), None)
    return None
