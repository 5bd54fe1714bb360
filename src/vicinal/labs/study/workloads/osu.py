"""The driver of the user's OSU micro-benchmarks, which print means.

Their minima and maxima are over the ranks' means. They keep no single iterations, except for the
percentiles that newer versions can print. The tables are read by the names and units of columns,
because options and versions add columns. One added column says whether received data were correct
(`-c`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import user_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import (
    count,
    in_bytes_per_second,
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

_PAIRS = {"latency": "osu_latency", "bandwidth": "osu_bw", "bidirectional": "osu_bibw"}
_MANY = {"multi-latency": "osu_multi_lat", "multi-bandwidth": "osu_mbw_mr"}
_REMOTE = {
    "put": "osu_put_latency",
    "get": "osu_get_latency",
    "accumulate": "osu_acc_latency",
    "put-bandwidth": "osu_put_bw",
    "get-bandwidth": "osu_get_bw",
    "put-bidirectional": "osu_put_bibw",
}
_COLLECTIVES = {
    name: f"osu_{name}" for name in ("barrier", "bcast", "allgather", "allreduce", "alltoall")
}
_PROGRAMS = {**_PAIRS, **_MANY, **_REMOTE, **_COLLECTIVES}
OPERATIONS = tuple(_PROGRAMS)

_COLUMN = re.compile(
    r"Size|Iterations|Validation|Messages/s|[kMGT]?i?B/s"
    r"|(?:(?:Avg|Min|Max) )?Latency ?\([^()\s]{1,8}\)|Bandwidth ?\([^()\s]{1,8}\)"
    r"|P[0-9]+ Tail (?:Lat|BW) ?\([^()\s]{1,8}\)"
)
_NAMES = {
    "Latency": "mean",
    "Avg Latency": "mean",
    "P50 Tail Lat": "median",
    "P90 Tail Lat": "P90",
    "P99 Tail Lat": "P99",
    "Bandwidth": "mean",
}
"""Figures by the names of their columns without units."""
_TITLE = re.compile(r"# OSU .{1,80} Test v([0-9][\w.+-]{0,20})\s*")
_VALID = {"pass": True, "fail": False}
_FAILED = "VALIDATION ERROR"
"""Part of the line that a program prints before it ends early."""


class Osu:
    """Means over all iterations."""

    name = "osu"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program, linked with this MPI library."""
        try:
            if workload.operation in _PROGRAMS:
                user_program(tools, "osu", (_PROGRAMS[workload.operation],), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """One start for all sizes from the smallest to the largest; the workload's sizes among them
        count.
        """
        options = Options(workload, ("window", "synchronization", "percentiles", "validation"))
        operation = options.operation(OPERATIONS)
        collective = operation in _COLLECTIVES
        most = None if collective or operation in _MANY else 2
        ranks = options.ranks(2, most, multiple=1 if collective else 2)
        arguments = ["-i", str(workload.samples), "-x", str(max(1, workload.samples // 10))]
        if operation == "barrier":
            options.no_sizes()
        arguments += osu_sizes(options)
        if options.flag("percentiles"):
            arguments.append("-z")
        if options.flag("validation"):
            arguments.append("-c")
        arguments += _switches(options, operation)
        program = str(user_program(tools, "osu", (_PROGRAMS[operation],), mpi))
        return Program([program, *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        return read_osu(_PROGRAMS[workload.operation], workload, stdout)


def osu_sizes(options: Options) -> list[str]:
    """The switch for the smallest and the largest size; the programs measure all powers of two
    between.
    """
    sizes = options.workload.sizes
    if any(size < 1 or size & (size - 1) for size in sizes):
        raise options.error(
            "has a size that is not a power of two", "use powers of two, as the OSU programs do"
        )
    return ["-m", f"{min(sizes)}:{max(sizes)}"] if sizes else []


def _switches(options: Options, operation: str) -> list[str]:
    found: list[str] = []
    if options.given("window"):
        if "bandwidth" not in operation and "bidirectional" not in operation:
            raise options.error(f"has the option window, but {operation} has none", "leave it out")
        found += ["-W", str(options.number("window", 64, most=65536))]
    if options.given("synchronization"):
        if operation not in _REMOTE:
            raise options.error(
                f"has the option synchronization, but {operation} has none", "leave it out"
            )
        ways = ("flush", "lock", "pscw", "fence")
        found += ["-s", options.choice("synchronization", ways, "flush")]
    return found


@dataclass(frozen=True)
class _Column:
    """One column of the table: its figure and unit."""

    name: str
    """`mean`, `median`, ..., or the column's own name if it is not a figure."""
    unit: str = ""
    """The unit of a figure: µs, MB/s or M/s."""
    factor: float = 1.0
    """Factor from the printed unit to `unit`."""


def read_osu(program: str, workload: Workload, stdout: str) -> Measured:
    """Read the table that all OSU programs of versions 5 to 7 print, and the title above it.

    Latencies become µs, bandwidths MB/s of 10^6 bytes, and message rates M/s. Lines of a launcher
    or a library are skipped. Raises VicinalError if the table is incomplete, lacks a size of the
    workload, or says that the program's validation failed.
    """
    lines = whole_lines(stdout)
    titles = {line.strip(): found[1] for line in lines if (found := _TITLE.fullmatch(line))}
    title = single(
        program, "its title", sorted(titles), expected="one line such as '# OSU MPI ... Test v7.5'"
    )
    failed = next((line for line in lines if _FAILED in line), None)
    if failed is not None:
        raise invalid_data(program, "", failed)
    heads = [at for at, line in enumerate(lines) if _is_head(line)]
    if len(heads) != 1:
        likely = next((line for line in lines if _may_be_head(line)), None)
        raise refused(
            program,
            f"it prints its columns {len(heads)} times instead of once",
            line=likely,
            expected="one line of known columns, such as '# Size       Avg Latency(us)'",
        )
    columns = [_column(program, name, lines[heads[0]]) for name in _names(lines[heads[0]])]
    rows = list(_rows(columns, lines[heads[0] + 1 :]))
    figures = [figure for line in rows for figure in _figures(program, columns, line)]
    if columns[0].name == "Size":
        same_sizes(program, workload, [count(program, line.split()[0]) for line in rows])
    elif len(rows) != 1:
        raise refused(program, f"it prints {len(rows)} lines instead of one")
    wanted = set(workload.sizes)
    figures = [each for each in figures if not wanted or each.size in wanted]
    if not figures:
        raise refused(program, "it prints no values", line=lines[heads[0]])
    facts: dict[str, object] = {
        "program": title.removeprefix("# "),
        "version": titles[title],
        "clock": "MPI_Wtime",
    }
    if any(each.name == "Validation" for each in columns):
        facts["validated"] = True
    return Measured(figures=figures, facts=facts)


def _names(head: str) -> list[str]:
    return _COLUMN.findall(head)


def _is_head(line: str) -> bool:
    """Whether a line has known columns and nothing else."""
    return (
        line.startswith("# ")
        and _COLUMN.search(line) is not None
        and not (_COLUMN.sub("", line[1:]).strip())
    )


def _may_be_head(line: str) -> bool:
    """Whether an error should quote the line: it has a known column, and something else."""
    return line.startswith("# ") and not _TITLE.fullmatch(line) and bool(_COLUMN.search(line))


def _column(program: str, text: str, head: str) -> _Column:
    """A column by its name in the head; a figure may have any unit of its kind."""
    if text == "Messages/s":
        return _Column("mean", "M/s", 1e-6)
    label, _, unit = text.rstrip(")").partition("(")
    if not unit:
        label, unit = ("Bandwidth", text) if text.endswith("B/s") else (text, "")
    name = _NAMES.get(label.strip())
    if name is None:
        return _Column(label.strip())
    if label.strip() == "Bandwidth":
        bytes_each = in_bytes_per_second(unit)
        factor = None if bytes_each is None else bytes_each / 1e6
    else:
        factor = in_microseconds(unit)
    if factor is None:
        raise refused(
            program,
            f"its {label.strip()} is in {unit!r}",
            line=head,
            expected="a time, as us, or a bandwidth, as MB/s",
        )
    return _Column(name, "MB/s" if label.strip() == "Bandwidth" else "µs", factor)


def _rows(columns: list[_Column], lines: list[str]) -> Iterator[str]:
    """The lines of the table, without other lines in between.

    A line of the table begins with a digit: a size is never indented. It has as many cells as there
    are columns, or only numbers and verdicts. So a line with a missing or an additional cell is
    found and refused.
    """
    sized = columns[0].name == "Size"
    for line in lines:
        cells = line.split()
        if not cells or not cells[0][0].isdigit():
            continue
        flush = not (sized and line[0].isspace())
        if (flush and len(cells) == len(columns)) or all(
            is_number(cell) or cell.lower() in _VALID for cell in cells
        ):
            yield line


def _figures(program: str, columns: list[_Column], line: str) -> list[Figure]:
    row = line.split()
    if len(row) != len(columns):
        raise refused(program, f"a line of {len(columns)} columns has {len(row)}", line=line)
    size = count(program, row[0], line=line) if columns[0].name == "Size" else None
    found = []
    for column, cell in zip(columns, row, strict=True):
        if column.unit:
            value = number(program, cell, line=line) * column.factor
            found.append(Figure(column.name, value, column.unit, size))
        elif column.name == "Validation":
            _check_validation(program, cell, size, line)
    return found


def _check_validation(program: str, verdict: str, size: int | None, line: str) -> None:
    """Raise VicinalError unless the program found the data correct."""
    valid = _VALID.get(verdict.lower())
    if valid is None:
        raise refused(
            program, f"its validation is {verdict[:40]!r}", line=line, expected="Pass or Fail"
        )
    if not valid:
        raise invalid_data(program, "" if size is None else f" at {size} bytes", line)
