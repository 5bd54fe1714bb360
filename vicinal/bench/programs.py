"""The MPI programs of programs/: compiled once with each MPI library's own mpicc.

The sources are plain MPI and know nothing of Vicinal. `python -m vicinal.bench.programs`
compiles all of them; whoever runs one gets it compiled anew where its source is newer.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.errors import VicinalError
from vicinal.launch.environment import Mpi, checkout, mpi_prefix

MPI_PROGRAMS = {
    "latency": ["latency.c"],
    "bandwidth": ["bandwidth.c"],
    "pairs": ["pairs.c"],
    "verify": ["verify.c", "verify_transfer.c", "verify_matching.c"],
}
"""Name of each MPI program, and its sources in programs/."""

_FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror"]


def mpi_program(mpi: Mpi, name: str) -> Path:
    """Path of an MPI program, compiled if need be. Raises VicinalError if that fails."""
    compiler = mpi_prefix(mpi) / "bin" / "mpicc"
    return _compile(str(compiler), MPI_PROGRAMS[name], Path(mpi.value, name))


def memory_program() -> Path:
    """Path of the program that measures the machine's limits, compiled if need be."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise VicinalError("there is no C compiler", "install gcc, or name one in CC")
    return _compile(compiler, ["memory.c"], Path("memory"), "-pthread")


def build() -> None:
    """Compile all programs that are not up to date, for both MPI libraries."""
    for mpi in Mpi:
        for name in MPI_PROGRAMS:
            mpi_program(mpi, name)
    memory_program()


def _compile(compiler: str, sources: list[str], product: Path, *flags: str) -> Path:
    tree = checkout()
    if tree is None or not (tree / "programs").is_dir():
        raise VicinalError(
            "the programs to measure with are not part of an installed package",
            "run this from a checkout of Vicinal",
        )
    target = tree / "build" / "programs" / product
    paths = [tree / "programs" / source for source in sources]
    headers = list((tree / "programs").glob("*.h"))
    with _lock(tree / "build" / "programs"):
        newest = max(path.stat().st_mtime for path in [*paths, *headers, Path(compiler)])
        if target.is_file() and target.stat().st_mtime > newest:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        # Compiled beside and moved there: a program that runs now is not overwritten.
        fresh = target.with_name(f".{target.name}.new")
        command = [compiler, *_FLAGS, *flags, "-o", str(fresh), *map(str, paths)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
            first = next((line for line in lines if "error" in line), lines[-1])
            raise VicinalError(
                f"{product} could not be compiled: {first}", f"try {' '.join(command)}"
            )
        fresh.replace(target)
    return target


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Only one process at a time compiles in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    build()
