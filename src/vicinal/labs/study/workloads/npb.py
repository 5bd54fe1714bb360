"""The driver of the user's NAS parallel benchmarks."""

import re

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import TOTAL_TIME, Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import user_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import agree, count, number, refused, single, whole_lines
from vicinal.mpi.libraries import Mpi

OPERATIONS = ("IS", "EP", "CG", "MG", "FT", "LU", "BT", "SP")
_SQUARES = ("BT", "SP")
"""Run on a square number of ranks. All others except LU and EP run on a power of two."""
_POWERS = ("IS", "CG", "MG", "FT")
_CLASSES = ("S", "W", "A", "B", "C", "D", "E", "F")
_LINE = re.compile(r"\s*([A-Z][\w/ ]{1,30}?) *= *(\S.*?)\s*")
_NEAR = 0.01


class Npb:
    """The time that the benchmark measures itself, and its operations a second."""

    name = "npb"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program for this class, linked with this MPI library."""
        try:
            user_program(tools, "npb", _names(workload), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """Since version 3.4 a program runs on any number of ranks (is.B.x); older programs run on
        one number.
        """
        options = Options(workload, ("class",))
        operation = options.operation(OPERATIONS)
        options.no_sizes()
        options.choice("class", _CLASSES, "A")
        ranks = options.ranks(1)
        if operation in _SQUARES and round(ranks**0.5) ** 2 != ranks:
            raise options.error(
                f"cannot run {operation} on {ranks} ranks", "use a square: 1, 4, 9, 16, ..."
            )
        if operation in _POWERS and ranks & (ranks - 1):
            raise options.error(
                f"cannot run {operation} on {ranks} ranks", "use a power of two: 1, 2, 4, 8, ..."
            )
        return Program([str(user_program(tools, "npb", _names(workload), mpi))], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Read the lines NAME = VALUE under `Benchmark Completed`."""
        operation = workload.operation
        lines = whole_lines(stdout)
        end = [at for at, line in enumerate(lines) if "Benchmark Completed" in line]
        expected = f"one line '{operation} Benchmark Completed.'"
        at = int(single("NPB", "that it completed", [str(each) for each in end], expected=expected))
        if lines[at].split()[0] != operation:
            raise refused("NPB", f"it ran {lines[at].split()[0]} instead of {operation}")
        values: dict[str, str] = {}
        for line in lines[at + 1 :]:
            found = _LINE.fullmatch(line)
            if found is not None:
                values.setdefault(found[1], found[2])
        _check(workload, values)
        seconds = number("NPB", _value(values, "Time in seconds"))
        rate = number("NPB", _value(values, "Mop/s total"))
        each = number("NPB", _value(values, "Mop/s/process"), zero=True)
        ranks = count("NPB", _value(values, "Total processes"))
        if abs(each * ranks - rate) > 0.01 * ranks:
            agree("NPB", "the rates of all and of each rank", each * ranks, rate, _NEAR)
        figures = [Figure(TOTAL_TIME, seconds, "s"), Figure("rate", rate, "Mop/s")]
        facts: dict[str, object] = {
            "program": f"NPB {_value(values, 'Version')}",
            "version": _value(values, "Version"),
            "clock": "MPI_Wtime",
            "class": values["Class"],
            "problem": values.get("Size", ""),
        }
        return Measured(figures=figures, facts=facts)


def _names(workload: Workload) -> tuple[str, ...]:
    name = f"{workload.operation.lower()}.{workload.options.get('class', 'A')}"
    return f"{name}.x", f"{name}.{workload.ranks}"


def _value(values: dict[str, str], name: str) -> str:
    if name not in values:
        raise refused("NPB", f"it prints no {name}", expected=f"a line '{name} = VALUE'")
    return values[name]


def _check(workload: Workload, values: dict[str, str]) -> None:
    if _value(values, "Verification") != "SUCCESSFUL":
        raise refused(
            "NPB",
            "its own verification did not succeed",
            line=f"Verification = {values['Verification']}",
        )
    if _value(values, "Class") != workload.options.get("class", "A"):
        raise refused("NPB", f"it ran the class {values['Class']}")
    ranks = count("NPB", _value(values, "Total processes"))
    active = values.get("Active processes", str(ranks))
    if ranks != workload.ranks or active != str(ranks):
        raise refused("NPB", f"it did not run on {workload.ranks} ranks")
