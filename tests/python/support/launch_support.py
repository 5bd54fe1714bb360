"""What the tests of clusters and jobs share."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from process_support import signal_all

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.launch.running import RunningJob
from vicinal.mpi.environment import mpi_prefix, provider_directory

LAUNCH_RANKS = Path(__file__).resolve().with_name("launch_ranks.c")

GUARD_SECONDS = 120.0
"""A guard against hangs: nothing here takes more than a few seconds."""

NOBODY = 65534

SEED = 20261
SCRIBBLE_SECONDS = 1.2


@cache
def _provider_trouble() -> str:
    try:
        provider_directory()
    except VicinalError as error:
        return str(error)
    return ""


REGION = pytest.param(
    "region", marks=pytest.mark.skipif(bool(_provider_trouble()), reason=_provider_trouble())
)
MPIS = ("mpich", "openmpi")


def long_unless(common: bool) -> tuple[pytest.MarkDecorator, ...]:
    """Marks for a variation of a test: long, unless the variation belongs to the common check."""
    return () if common else (pytest.mark.long,)


def square(
    rows: Iterable[object], columns: Iterable[object], common: Iterable[tuple[object, ...]]
) -> list[ParameterSet]:
    """Each row with each column as parameters. Pairs outside of `common` are long tests."""
    wanted = list(common)
    made = []
    for row, column in itertools.product(map(_as_parameter, rows), map(_as_parameter, columns)):
        values = (*row.values, *column.values)
        made.append(
            pytest.param(*values, marks=(*row.marks, *column.marks, *long_unless(values in wanted)))
        )
    assert {each.values for each in made} >= {*wanted}
    return made


def _as_parameter(value: object) -> ParameterSet:
    return value if isinstance(value, ParameterSet) else pytest.param(value)


MPI_DIAGONAL = (("mpich", "region"), ("openmpi", "network"))
"""Each MPI and each path once."""
ONE_MPI = [pytest.param(mpi, marks=long_unless(mpi == "mpich")) for mpi in MPIS]
"""For tests that hardly depend on the MPI: with Open MPI they are long tests."""


def compile_for_each_mpi(source: Path, directory: Path, *more: Path) -> dict[str, Path]:
    """Compile one or more files of a program with the compiler wrapper of each MPI."""
    programs = {mpi: directory / f"ranks-{mpi}" for mpi in MPIS}
    for mpi, program in programs.items():
        prefix = mpi_prefix(mpi)
        command: list[str | Path] = [prefix / "bin" / "mpicc", "-std=gnu11", "-O1"]
        command += ["-Wall", "-Wextra", "-Werror", "-o", program, source, *more]
        command.append(f"-Wl,-rpath,{prefix / 'lib'}")
        subprocess.run(command, check=True)
    return programs


def in_regions(regions: dict[str, str], program: list[str], *, before: str = "") -> list[str]:
    """A command that runs `program` on any host, in the regions listed for the host's name.

    The shell first runs `before`.
    """
    cases = " ".join(f"{host}) VICINAL_REGION={names};;" for host, names in regions.items())
    shell = f'case $(uname -n) in {cases} esac; export VICINAL_REGION; {before}exec "$0" "$@"'
    return ["/bin/sh", "-c", shell, *program]


def scribble(build: Path, region: Path, part: str) -> int:
    """Write nonsense into a part of a region for a while. Returns how often, or 0 for `cut`."""
    program = build / "tests/hostile/scribbler"
    done = subprocess.run(
        [program, region, str(SCRIBBLE_SECONDS), str(SEED), part],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=GUARD_SECONDS,
    )
    return int(done.stdout.removeprefix("writes=") or 0)


def end_soak(running: RunningJob) -> None:
    """Tell a job's program soak to end now and to count."""
    signal_all(running.ranks().values(), signal.SIGUSR2)


def wait_for(path: Path, text: str, count: int = 1) -> None:
    """Wait until a job has written a text into a file `count` times."""
    deadline = time.monotonic() + GUARD_SECONDS
    while path.read_text().count(text) < count:
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.02)


@dataclass(frozen=True)
class Report:
    """A line of `launch_ranks report`."""

    rank: int
    ranks: int
    host: str
    pid: int
    sum: int
    wrong: int
    cpus: int


def parse_reports(output: str) -> list[Report]:
    """The reports of all ranks, by rank."""
    reports = []
    for line in output.splitlines():
        if line.startswith("rank="):
            values = dict(part.split("=") for part in line.split())
            host = values.pop("host")
            reports.append(Report(host=host, **{key: int(text) for key, text in values.items()}))
    return sorted(reports, key=lambda report: report.rank)


def check_reports(output: str, hosts: list[str]) -> list[Report]:
    """Check that each rank gave one good report, on the given hosts."""
    reports = parse_reports(output)
    ranks = len(hosts)
    assert [report.rank for report in reports] == list(range(ranks)), output
    assert [report.host for report in reports] == hosts
    assert all(report.ranks == ranks and report.wrong == 0 for report in reports), output
    assert all(report.sum == ranks * (ranks - 1) // 2 for report in reports), output
    return reports


@cache
def unprivileged_python() -> list[str]:
    """A command line that runs this Python as a user without privileges, with the same packages.

    tests/conftest.py makes the checkout and the interpreter reachable for that user.
    """
    if os.geteuid() != 0:
        return [sys.executable]
    python = [
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        sys.executable,
    ]
    # setpriv may start an interpreter with privileges that the interpreter itself then lacks.
    question = "import os, sys, vicinal.cli; sys.exit(not os.access(sys.executable, os.X_OK))"
    answer = subprocess.run(
        [*python, "-c", question],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    assert answer.returncode == 0, (
        f"user {NOBODY} cannot run {sys.executable} with {package_path()}: root may make no mount "
        f"namespace here, or the files themselves are closed to other users. {answer.stderr}"
    )
    return python


def package_path() -> str:
    """PYTHONPATH for an interpreter of another environment."""
    checkout = str(Path(vicinal.__file__).resolve().parents[1])
    return os.pathsep.join([checkout, *(path for path in sys.path if path)])
