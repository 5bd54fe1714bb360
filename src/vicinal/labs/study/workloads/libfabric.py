"""The driver of libfabric without MPI: libfabric's own fi_pingpong, between two nodes.

The table is read by the names and units of its columns. The program does not print its version.
"""

import re
from collections.abc import Callable

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import debian_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import (
    in_bytes_per_second,
    in_microseconds,
    number,
    refused,
    same_sizes,
    single,
)
from vicinal.labs.study.workloads.remote import by_size, client_script, server_script
from vicinal.mpi.libraries import Mpi

OPERATIONS = ("latency", "bandwidth")
_SIZES = (64, 4096, 65536)
_MOST = 1 << 26
_NAMES = ("bytes", "#sent", "#ack")
"""Columns of the table in any order; a bandwidth column and a time column follow."""
_PORT = 47592
_PROVIDER = re.compile(r"[\w;]{1,64}", re.ASCII)


class Libfabric:
    """Means over all iterations, by the program: half a round trip, and the bandwidth that results,
    in MB/s.

    The environment names the provider by FI_PROVIDER, or the workload by the option `provider`.
    """

    name = "libfabric"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the program exists; no MPI library is needed."""
        del workload, mpi
        try:
            debian_program(tools, "libfabric", "fi_pingpong", "libfabric-bin")
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        del mpi
        options = Options(workload, ("provider", "endpoint", "messages", "port"))
        options.operation(OPERATIONS)
        options.ranks(2, 2)
        sizes = workload.sizes or _SIZES
        if any(not 1 <= size <= _MOST for size in sizes):
            raise options.error(
                "has a size that fi_pingpong cannot send", f"use sizes from 1 to {_MOST} bytes"
            )
        path = str(debian_program(tools, "libfabric", "fi_pingpong", "libfabric-bin"))
        both = [path, "-e", options.choice("endpoint", ("rdm", "msg", "dgram"), "rdm")]
        both += ["-m", options.choice("messages", ("msg", "tagged"), "tagged")]
        if options.given("provider"):
            provider = str(workload.options["provider"])
            if not _PROVIDER.fullmatch(provider):
                raise options.error(f"has provider: {provider!r}", "write a name, such as tcp")
            both += ["-p", provider]
        port = str(options.number("port", _PORT, least=1024, most=65535))
        both += ["-I", str(workload.samples), "-S", "$size"]
        return Program(
            client_script([*both, "-P", port, "{server}"], sizes),
            2,
            server=server_script([*both, "-B", port], sizes),
        )

    def read(self, workload: Workload, stdout: str) -> Measured:
        found = by_size("fi_pingpong", stdout)
        same_sizes("fi_pingpong", workload, list(found))
        figures = [
            figure
            for size, lines in found.items()
            for figure in _figures(size, lines, workload.samples)
        ]
        return Measured(figures=figures, facts={"program": "fi_pingpong", "clock": "system"})


def _figures(size: int, lines: list[str], sent: int) -> list[Figure]:
    heads = [at for at, line in enumerate(lines) if set(_NAMES) <= set(line.split())]
    at = int(
        single(
            "fi_pingpong",
            f"a table of {size} bytes",
            [str(head) for head in heads],
            expected=f"one line of columns with {', '.join(_NAMES)}",
        )
    )
    columns = lines[at].split()
    rate_column, rate_unit = _column(columns, _bandwidth, lines[at], "a bandwidth, as MB/sec")
    time_column, time_unit = _column(columns, _transfer, lines[at], "a time, as usec/xfer")
    # From 1024 on the program prints rounded counts, such as 1.4k.
    rows = [line for line in lines[at + 1 :] if _is_row(line, len(columns))]
    if len(rows) != 1:
        raise refused(
            "fi_pingpong",
            f"it prints no values for {size} bytes",
            line=next(iter(lines[at + 1 :]), ""),
            expected=f"one line of {len(columns)} columns",
        )
    cells = dict(zip(columns, rows[0].split(), strict=True))
    shown = [
        str(value) if value < 1024 else cells[name]
        for value, name in ((size, "bytes"), (sent, "#sent"))
    ]
    if [cells[name] for name in _NAMES] != [*shown, f"={shown[1]}"]:
        raise refused("fi_pingpong", f"it did not send {sent} times {size} bytes", line=rows[0])
    rate = number("fi_pingpong", cells[rate_column], zero=True, line=rows[0]) * rate_unit
    microseconds = number("fi_pingpong", cells[time_column], line=rows[0]) * time_unit
    # Both are computed from one time; the last digit of each is a hundredth.
    rounding = 0.006 * rate_unit + 0.006 * time_unit * rate / microseconds
    if abs(rate - size / microseconds) > rounding:
        raise refused("fi_pingpong", f"time and rate of {size} bytes do not agree", line=rows[0])
    return [
        Figure("mean", microseconds, "µs", size),
        Figure("mean", size / microseconds, "MB/s", size),
    ]


def _bandwidth(column: str) -> float | None:
    """MB a second in the unit of a column; None for a column of another kind."""
    found = in_bytes_per_second(column)
    return None if found is None else found / 1e6


def _transfer(column: str) -> float | None:
    """µs in the unit of a column of times; None for a column of another kind."""
    return in_microseconds(column.removesuffix("/xfer")) if column.endswith("/xfer") else None


def _column(
    columns: list[str], unit: Callable[[str], float | None], head: str, expected: str
) -> tuple[str, float]:
    """The only column whose name is a unit of this kind, and the unit's factor."""
    found = [(each, factor) for each in columns if (factor := unit(each)) is not None]
    if len(found) != 1:
        raise refused(
            "fi_pingpong",
            "its table lacks a column",
            line=head,
            expected=f"one column of {expected}",
        )
    return found[0]


def _is_row(line: str, columns: int) -> bool:
    """Whether a line has as many cells as the table and begins with a size."""
    cells = line.split()
    return len(cells) == columns and cells[0][0].isdigit()
