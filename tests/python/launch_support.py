"""What the tests of clusters and jobs share."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import vicinal
from vicinal.errors import VicinalError
from vicinal.launch.environment import mpi_prefix, provider_directory

SOURCE = Path(__file__).with_name("launch_ranks.c")

GUARD_SECONDS = 120.0
"""After this a job hangs; nothing here takes more than a few seconds."""

NOBODY = 65534


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


def compile_ranks(mpi: str, directory: Path) -> Path:
    """Compile launch_ranks.c with an MPI's own compiler wrapper."""
    prefix = mpi_prefix(mpi)
    program = directory / f"ranks-{mpi}"
    subprocess.run(
        [
            *(str(prefix / "bin" / "mpicc"), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"),
            *("-o", str(program), str(SOURCE), f"-Wl,-rpath,{prefix / 'lib'}"),
        ],
        check=True,
    )
    return program


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
    """The reports of all ranks, in the order of ranks."""
    reports = []
    for line in output.splitlines():
        if line.startswith("rank="):
            values = dict(part.split("=") for part in line.split())
            host = values.pop("host")
            reports.append(Report(host=host, **{key: int(text) for key, text in values.items()}))
    return sorted(reports, key=lambda report: report.rank)


def check_reports(output: str, hosts: list[str]) -> list[Report]:
    """Check that there is one good report of each rank, on the given hosts."""
    reports = parse_reports(output)
    ranks = len(hosts)
    assert [report.rank for report in reports] == list(range(ranks)), output
    assert [report.host for report in reports] == hosts
    assert all(report.ranks == ranks and report.wrong == 0 for report in reports), output
    assert all(report.sum == ranks * (ranks - 1) // 2 for report in reports), output
    return reports


def unprivileged_python() -> list[str]:
    """A command line that runs Python as a user without rights, with this one's packages.

    Skips the test where no interpreter of this version can be reached by such a user.
    """
    if os.geteuid() != 0:
        return [sys.executable]
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # setpriv may start an interpreter with rights that it does not have later itself.
    question = "import os, sys, vicinal.cli; sys.exit(not os.access(sys.executable, os.X_OK))"
    for python in (sys.executable, "/usr/bin/python3"):
        answer = subprocess.run(
            [*become, python, "-c", question],
            capture_output=True,
            check=False,
            cwd="/",
            env=os.environ | {"PYTHONPATH": package_path()},
        )
        if answer.returncode == 0:
            return [*become, python]
    pytest.skip("an ordinary user can reach no Python that runs vicinal, or not the checkout")


def package_path() -> str:
    """PYTHONPATH for an interpreter that is not this environment's."""
    checkout = str(Path(vicinal.__file__).resolve().parents[1])
    return os.pathsep.join([checkout, *(path for path in sys.path if path)])
