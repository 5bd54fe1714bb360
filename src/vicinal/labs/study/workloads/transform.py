"""The driver of Vicinal's own program transform: Fourier transforms of a cube over all ranks.

The program stands in for P3DFFT and similar libraries if they are missing. All ranks exchange with
all, as in these libraries. A plain algorithm transforms the lines, so computation takes a larger
share than with a tuned library.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import COMMUNICATION_TIME, TOTAL_TIME, Figure, ProgramFact
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import refused, whole_lines
from vicinal.mpi.libraries import Mpi, installation

OPERATIONS = ("sine", "rand", "inverse", "spec")
_SIZE = 64
_SIZE_MOST = 1024
_RANKS_MOST = 1 << 16
_LONGEST = 1 << 62


class Transform:
    """Times of single transforms, and the share of communication in them."""

    name = "transform"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        del workload, tools
        try:
            installation(mpi)
            mpi_program(mpi, "transform")
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        del tools
        options = Options(workload, ("size",))
        operation = options.operation(OPERATIONS)
        options.no_sizes()
        size = options.number("size", _SIZE, least=4, most=_SIZE_MOST)
        if size & (size - 1):
            raise options.error(f"has size: {size}", "write a power of two, the cube's edge")
        ranks = options.ranks(1, size)
        if workload.samples < 1 or not workload.seconds > 0:
            raise options.error(
                f"asks for {workload.samples} samples in {workload.seconds} s",
                "ask for at least one sample in more than 0 s",
            )
        arguments = [operation, "--size", str(size), "--iterations", str(workload.samples)]
        arguments += ["--seconds", f"{workload.seconds:g}"]
        return Program([str(mpi_program(mpi, "transform")), *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Samples of every rank. Figures are means; the total time is the mean over each
        iteration's slowest rank.
        """
        size = Options(workload, ("size",)).number("size", _SIZE)
        try:
            printed = _Printed.read([line for line in whole_lines(stdout) if line[:1] == "{"])
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            raise refused("transform", f"{type(error).__name__}: {error}") from error
        if (printed.operation, printed.size, len(printed.times)) != (
            workload.operation,
            size,
            workload.ranks,
        ):
            raise refused("transform", "it ran another operation or size, or on other ranks")
        total = float(np.max(printed.times, axis=0).mean()) / 1e9
        communication = float(printed.communication.mean()) / 1e9
        facts: dict[str, object] = {
            "program": "transform",
            ProgramFact.CLOCK.value: "MPI_Wtime",
            ProgramFact.APART.value: False,
            "mpi": printed.mpi,
            "hosts": printed.hosts,
            "edge": size,
        }
        return Measured(
            series=[Series(0, rank, 1, times) for rank, times in enumerate(printed.times)],
            figures=[
                Figure(TOTAL_TIME, total, "s"),
                Figure(COMMUNICATION_TIME, communication, "s"),
            ],
            facts=facts,
        )


@dataclass(frozen=True)
class _Printed:
    """The program's complete output."""

    mpi: str
    hosts: list[str]
    operation: str
    size: int
    times: NDArray[np.int64]
    """Nanoseconds, a row for each rank."""
    communication: NDArray[np.int64]

    @classmethod
    def read(cls, lines: list[str]) -> "_Printed":
        """Parse the lines. Raises the errors of json and NumPy for lines that the program does not
        print.
        """
        if len(lines) < 4:
            raise ValueError("it did not finish")
        run, head, *rows, end = (json.loads(line) for line in lines)
        ranks, iterations = run["ranks"], head["iterations"]
        if end != {"end": True, "ranks": ranks} or [row["rank"] for row in rows] != list(
            range(min(ranks, _RANKS_MOST))
        ):
            raise ValueError("ranks are missing")
        hosts = [str(host) for host in run["hosts"]]
        times = np.array([_times(row["nanoseconds"], iterations) for row in rows])
        communication = np.array([_times(row["communication"], iterations) for row in rows])
        # The program rounds both.
        if not (communication <= times + 1).all():
            raise ValueError("more communication than time")
        return cls(str(run["mpi"]), hosts, head["operation"], head["size"], times, communication)


def _times(values: Any, count: Any) -> NDArray[np.int64]:
    if type(values) is not list or len(values) != count or count < 1:
        raise ValueError("times of a rank are missing")
    if any(type(value) is not int or not 0 <= value < _LONGEST for value in values):
        raise ValueError("a time is not a number of nanoseconds")
    return np.array(values, dtype=np.int64)
