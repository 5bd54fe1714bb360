"""The program of a job: whether it can be started, and which MPI it was built with."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from vicinal.errors import VicinalError
from vicinal.mpi.libfabric import linked_libraries
from vicinal.mpi.libraries import Mpi

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

HIDDEN = (Path("/dev/shm"), Path("/run"))
"""Directories of which each node has its own."""


def find_program(name: str, *, anywhere: bool = False) -> Path:
    """The absolute path of a program, as a shell would find it.

    Raises VicinalError where there is none, or nodes could not start it; with `anywhere` it
    is for no nodes, and may lie where those see another directory.
    """
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
    for library, place in linked_libraries(program).items():
        for beginning, mpi in _LIBRARIES.items():
            if library.startswith(beginning):
                return mpi, place
    return None
