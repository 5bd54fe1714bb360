"""The programs of programs/: making, running and reading them.

The sources are plain MPI and know nothing of Vicinal; memory.c does without MPI. Each program
prints one JSON object a line.

There is one binary for each MPI library, made by the compiler of the library on first use. In a
checkout, the Makefile makes it in build/programs. Elsewhere, the package contains the sources, and
the binary is in the user's cache, in a directory whose name is a digest of sources and compiler.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vicinal.base.directories import check_writable, may_write
from vicinal.base.errors import VicinalError
from vicinal.base.files import locked, replaced
from vicinal.base.native import compiled_programs, native_remedy, program_sources
from vicinal.mpi.environment import Mpi, checkout
from vicinal.mpi.libraries import Family, Installation, default_installation, installation

_OPTIONS = ("-std=gnu11", "-O2", "-g")
"""The compiler's options in an installed package, as in the Makefile without warnings."""

_COMPILERS = {Family.MPICH: "mpicc.mpich", Family.OPENMPI: "mpicc.openmpi"}
"""Debian's names of compilers; without them, all libraries have an mpicc."""


def mpi_program(mpi: Mpi, name: str) -> Path:
    """Path of a program made with the compiler of an MPI library; made anew if out of date.

    Raises VicinalError if it cannot be made.
    """
    sources = _sources(name)
    if (tree := checkout()) is not None:
        return _made(tree, Path(mpi.value, name))
    found = installation(mpi)
    return _compiled(
        [str(_compiler(found)), *_OPTIONS, f"-Wl,-rpath,{found.library.parent}"],
        sources,
        Path(mpi.value, name),
        {"I_MPI_ROOT": str(found.prefix)} if found.family is Family.INTEL else {},
    )


def fabric_program(name: str) -> Path:
    """Path of a program that uses libfabric and no MPI; made anew if out of date."""
    sources = _sources(f"fabric/{name}")
    if (tree := checkout()) is not None:
        return _made(tree, Path("fabric", name))
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "cc")
    return _compiled([compiler, *_OPTIONS], sources, Path("fabric", name), {})


def _sources(name: str) -> list[Path]:
    """The C files of a program, with its headers at the end."""
    folder = program_sources()
    if folder is None or not (folder / f"{name}.c").is_file():
        raise VicinalError(
            f"this installation has no source of the program {name}", native_remedy()
        )
    first = folder / f"{name}.c"
    parts = sorted(first.parent.glob(f"{first.stem}_*.c"))
    return [first, *parts, *sorted(first.parent.glob("*.h"))]


def _compiler(mpi: Installation) -> Path:
    """The C compiler of an MPI library. Raises VicinalError if there is none."""
    directory = mpi.launcher.parent
    for name in (_COMPILERS.get(mpi.family), "mpicc"):
        if name is not None and (directory / name).is_file():
            return directory / name
    raise VicinalError(
        f"{mpi.full_name} has no {directory / 'mpicc'}, which compiles the measuring programs",
        "install the library's development package, in Debian libmpich-dev or libopenmpi-dev",
    )


def _compiled(
    command: Sequence[str], sources: Sequence[Path], program: Path, variables: Mapping[str, str]
) -> Path:
    """Compile a program into the cache unless it is there. Raises VicinalError if that fails."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        raise VicinalError(
            "there is no C compiler, and the measuring programs are compiled on first use",
            "install one: in Debian `apt-get install gcc libc6-dev`, in Red Hat `dnf install gcc`",
        )
    compiler = Path(command[0]).stat()
    key = hashlib.sha256(repr((command, compiler.st_size, compiler.st_mtime_ns)).encode())
    for source in sources:
        key.update(source.read_bytes())
    directory = compiled_programs() / program.parent / key.hexdigest()[:16]
    target = directory / program.name
    if target.is_file():
        return target
    check_writable(directory, "set XDG_CACHE_HOME to a directory that you may write to")
    directory.mkdir(parents=True, exist_ok=True)
    with replaced(target, by_several=True) as part:
        done = subprocess.run(
            [
                *command,
                *("-o", str(part)),
                *(str(source) for source in sources if source.suffix == ".c"),
                *(["-lfabric"] if program.parent.name == "fabric" else []),
                "-lm",
            ],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise VicinalError(
                f"the program {program.name} could not be compiled: {_first_error(done.stderr)}",
                f"check that {command[0]} compiles a program; it needs a C compiler and the C "
                "library's headers",
            )
    return target


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line), lines[-1])


def _made(tree: Path, program: Path) -> Path:
    """Have the Makefile make a program in a checkout."""
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
        raise VicinalError(
            f"{target} could not be made: {_first_error(made.stderr)}",
            f"run `make {target}` in {tree}",
        )
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
    return mpi_program(Mpi(default_installation().name), "memory")


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
