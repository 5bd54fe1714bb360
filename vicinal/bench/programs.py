"""The programs of programs/, of which the Makefile makes one binary for each MPI library.

The sources are plain MPI and know nothing of Vicinal; memory.c does without MPI.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.errors import VicinalError
from vicinal.launch.environment import Mpi, checkout


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
    # Not under the make that may have started us: its job server is closed to us.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    with _lock(tree / "build" / "programs"):
        made = subprocess.run(
            ["make", "--quiet", "--directory", str(tree), str(target)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if made.returncode != 0:
        lines = made.stderr.strip().splitlines() or ["no message"]
        first = next((line for line in lines if "error" in line), lines[-1])
        raise VicinalError(f"{target} could not be made: {first}", f"run `make {target}` in {tree}")
    return tree / target


def memory_program() -> Path:
    """Path of the program that measures the machine's limits; it uses no MPI."""
    return mpi_program(Mpi.MPICH, "memory")


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Only one process at a time makes programs."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
