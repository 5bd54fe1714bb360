"""Folders for the files of tests of other projects' software, and the summary of their results."""

import re
import shutil
from pathlib import Path

import pytest
from software_support import GUARD_SECONDS, HERE, OUTPUT, Finished, Record, compile_program

_ROWS: list[tuple[str, str, str]] = []

PROGRAMS = ("NPopenmpi", "hpcc", "lmp", "mpicc.openmpi", "mpirun.openmpi", "caf.openmpi")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give `vicinal run` time to end a hanging job and name waiting ranks before pytest does."""
    for item in items:
        item.add_marker(pytest.mark.timeout(3 * GUARD_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """Fail instead of skipping if the packages are missing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    assert not missing, f"{', '.join(missing)} not found: run `scripts/setup software`"


@pytest.fixture
def directory(request: pytest.FixtureRequest) -> Path:
    """An empty directory for a test's files, which stay there until the test runs again."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    folder = OUTPUT / Path(request.node.path).stem.removeprefix("test_") / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Records a job and its answer for the table at the end."""

    def note(done: Finished, answer: str) -> None:
        job = f"{done.messages:,} messages, {done.bytes / 1e6:,.1f} MB, {done.seconds:.1f} s"
        _ROWS.append((request.node.name, answer, job))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the results, and keep them in build/software/summary.txt."""
    if not _ROWS:
        return
    lines = [f"{test}: {answer} ({job})" for test, answer, job in _ROWS]
    terminalreporter.section("answers, and what went through the region")
    for line in lines:
        terminalreporter.write_line(line)
    (OUTPUT / "summary.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def built() -> Path:
    """The directory of the programs in this folder, compiled for Debian's Open MPI."""
    folder = OUTPUT / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    warnings = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
    libraries = ("-lfftw3_mpi", "-lfftw3", "-lm")
    compile_program(
        "mpicc.openmpi", *warnings, HERE / "fft3d.c", "-o", folder / "fft3d", *libraries
    )
    library = ("-shared", "-fPIC", HERE / "wrong_data.c", "-o", folder / "wrong_data.so")
    compile_program("mpicc.openmpi", *warnings, *library)
    fortran = ("-std=f2018", "-O2", "-g", "-Wall", "-Werror", HERE / "coarray.f90")
    compile_program("caf.openmpi", *fortran, "-o", folder / "coarray")
    return folder
