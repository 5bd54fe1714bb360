"""The driver of the user's Intel MPI benchmarks, which print means.

The tables are read by the names and units of their columns. Builds that check data have one more
column, `defects`. If the program skipped a size because of time or memory, the line has words
instead of figures.
"""

import re
from collections.abc import Iterator

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import user_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import (
    count,
    in_microseconds,
    invalid_data,
    is_number,
    number,
    refused,
    same_sizes,
    single,
    whole_lines,
)
from vicinal.mpi.libraries import Mpi

_BENCHMARKS = {
    "latency": "PingPong",
    "bandwidth": "Uniband",
    "bidirectional": "Biband",
    "barrier": "Barrier",
    "bcast": "Bcast",
    "allgather": "Allgather",
    "allreduce": "Allreduce",
    "alltoall": "Alltoall",
}
OPERATIONS = tuple(_BENCHMARKS)
_PAIRS = ("latency", "bandwidth", "bidirectional")
_SIZES_FILE = "imb-sizes.txt"

_COUNTS = ("#bytes", "#repetitions")
_DEFECTS = "defects"
_SKIPPED = ("time-out", "out-of-mem", "int-overflow")
_TIME = re.compile(r"t(?:_avg)?\[(\w{1,8})\]")
"""The mean time. Minimum and maximum are over ranks' means and are not read. The column of MB is
not read either, because older versions count 2^20 bytes: bandwidth is computed from the rate of
messages."""
_MESSAGES = "Msg/sec"
_SUITE = re.compile(r"MPI Benchmark(?:s| Suite) V?([0-9][^,]{0,30}),")


class Imb:
    """Means over all iterations."""

    name = "imb"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program, linked with this MPI library."""
        del workload
        try:
            user_program(tools, "imb", ("IMB-MPI1",), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """One start for all sizes, which the program reads from a file."""
        options = Options(workload)
        operation = options.operation(OPERATIONS)
        ranks = options.ranks(
            2, 2 if operation == "latency" else None, multiple=2 if operation in _PAIRS else 1
        )
        arguments = [_BENCHMARKS[operation], "-npmin", str(ranks)]
        arguments += ["-iter", str(workload.samples), "-time", f"{workload.seconds:g}"]
        files: dict[str, str] = {}
        if operation == "barrier":
            options.no_sizes()
        elif workload.sizes:
            files[_SIZES_FILE] = "".join(f"{size}\n" for size in workload.sizes)
            arguments += ["-msglen", _SIZES_FILE]
        program = str(user_program(tools, "imb", ("IMB-MPI1",), mpi))
        return Program([program, *arguments], ranks, files=files)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Read the table under the benchmark's name."""
        lines = [" ".join(line.split()) for line in whole_lines(stdout)]
        wanted = f"# Benchmarking {_BENCHMARKS[workload.operation]}"
        begins = [str(at) for at, line in enumerate(lines) if line == wanted]
        at = int(single("IMB", wanted, begins, expected=f"one line {wanted!r}"))
        if f"# #processes = {workload.ranks}" not in lines[at:]:
            said = next((line for line in lines[at:] if "#processes =" in line), None)
            raise refused("IMB", f"it did not run on {workload.ranks} ranks", line=said)
        head = next((n for n in range(at, len(lines)) if "#repetitions" in lines[n].split()), None)
        if head is None or "# All processes entering MPI_Finalize" not in lines[head:]:
            raise refused("IMB", "it did not finish")
        columns = lines[head].split()
        figures: list[Figure] = []
        sizes: list[int] = []
        for line in _rows(lines[head + 1 :], len(columns)):
            row = line.split()
            if len(row) != len(columns):
                raise refused("IMB", f"a line of {len(columns)} columns has {len(row)}", line=line)
            cells = dict(zip(columns, row, strict=True))
            size = count("IMB", cells["#bytes"], line=line) if "#bytes" in cells else None
            sizes += [] if size is None else [size]
            _check_defects(cells, size, line)
            if size is None or not workload.sizes or size in workload.sizes:
                figures += _figures(cells, size, line)
        if columns[0] == "#bytes":
            same_sizes("IMB", workload, sizes)
        if not figures:
            raise refused(
                "IMB",
                "it prints no values",
                line=lines[head],
                expected="a column t[usec], t_avg[usec] or Msg/sec, and lines below it",
            )
        suite = next((line.strip("# ") for line in lines if "MPI Benchmarks" in line), "IMB")
        facts: dict[str, object] = {"program": suite, "clock": "MPI_Wtime"}
        version = next((found for line in lines if (found := _SUITE.search(line))), None)
        if version is not None:
            facts["version"] = version[1]
        if _DEFECTS in columns:
            facts["validated"] = True
        return Measured(figures=figures, facts=facts)


def _rows(lines: list[str], columns: int) -> Iterator[str]:
    """The lines of the table, up to an empty line or a comment, without lines of other programs.

    A line of the table begins with a digit, and has as many cells as there are columns or only
    numbers. Raises VicinalError for a line that says why the program skipped a size.
    """
    for line in lines:
        if not line or line.startswith("#"):
            return
        cells = line.split()
        if not cells[0][0].isdigit():
            continue
        if line.partition(" ")[2].startswith(_SKIPPED):
            raise refused("IMB", f"it skipped {cells[0]} bytes", line=line)
        if len(cells) == columns or all(is_number(cell) for cell in cells):
            yield line


def _check_defects(cells: dict[str, str], size: int | None, line: str) -> None:
    """Raise VicinalError if a build that checks data found wrong data."""
    if _DEFECTS in cells and number("IMB", cells[_DEFECTS], zero=True, line=line) > 0:
        raise invalid_data("IMB", "" if size is None else f" at {size} bytes", line)


def _figures(cells: dict[str, str], size: int | None, line: str) -> list[Figure]:
    """Means of one line, in µs, M/s and MB/s; a column with an unknown unit is skipped."""
    found = []
    for column, cell in cells.items():
        time = _TIME.fullmatch(column)
        unit = None if time is None else in_microseconds(time[1])
        if column in _COUNTS:
            count("IMB", cell, line=line)
        elif unit is not None:
            found.append(Figure("mean", number("IMB", cell, line=line) * unit, "µs", size))
        elif column == _MESSAGES:
            found.append(Figure("mean", number("IMB", cell, line=line) * 1e-6, "M/s", size))
    if _MESSAGES in cells and size is not None:
        rate = number("IMB", cells[_MESSAGES], line=line)
        found.append(Figure("mean", rate * size / 1e6, "MB/s", size))
    return found
