"""The programs of programs/, of which the Makefile makes one binary for each MPI library.

The sources are plain MPI and know nothing of Vicinal; memory.c does without MPI.
"""

import os
import subprocess
from pathlib import Path

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
    place = tree / "build" / "programs"
    # Mostly there is nothing to be made, and no need to wait for a command that makes something,
    # or stands still in the middle of that.
    if _make(tree, target, "--question").returncode == 0:
        return tree / target
    if not may_write(place):  # somebody else's checkout
        raise VicinalError(
            f"{tree / target} is missing or out of date, and this user may not make it",
            f"have the owner of {tree} run `make`, or work in a checkout of your own",
        )
    with locked(place):
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
