"""The driver of perftest: operations of RDMA verbs without MPI, between two nodes.

Latencies are samples, because the program prints all of them (`-U`). Its own mean and maximum leave
out the two longest; Vicinal's include them. Its JSON is not valid JSON, so its table is read, by
the names and units of columns. The unit was MB/sec until 2024 and is MiB/sec since then, the same
2^20 bytes, and Gb/sec with --report_gbits. Old versions have fewer columns, and some options add
columns.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import debian_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import (
    agree,
    count,
    in_bytes_per_second,
    in_microseconds,
    number,
    refused,
    same_sizes,
    scale,
)
from vicinal.labs.study.workloads.remote import by_size, client_script, server_script
from vicinal.mpi.libraries import Mpi

_LATENCIES = {f"{verb}-latency": f"ib_{verb}_lat" for verb in ("send", "write", "read", "atomic")}
_BANDWIDTHS = {f"{verb}-bandwidth": f"ib_{verb}_bw" for verb in ("send", "write", "read", "atomic")}
_PROGRAMS = _LATENCIES | _BANDWIDTHS
OPERATIONS = tuple(_PROGRAMS)
_OPTIONS = ("inline", "events", "device", "gid_index", "mtu", "bidirectional", "depth", "port")

_DEVICES = Path("/sys/class/infiniband")
_PORT = 18515
_ATOMIC_BYTES = 8
_MOST = 1 << 30
_DAY = 86_400e6  # in us
_LEAST_SAMPLES = 5
_DIGITS = 1e-4
"""Relative difference up to which values agree that are printed with six digits, or with two
decimals."""


class Perftest:
    """Every operation's time, or the mean rate of all operations."""

    name = "perftest"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether program and device exist; no MPI library is needed."""
        del mpi
        try:
            if workload.operation in _PROGRAMS:
                _program(workload.operation, tools)
        except VicinalError as error:
            return str(error)
        if "device" not in workload.options and not (_DEVICES.is_dir() and any(_DEVICES.iterdir())):
            return (
                "this host has no RDMA device: "
                "if virtual machines have one, name it by the option device (`device: rxe0`)"
            )
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        del mpi
        options = Options(workload, _OPTIONS)
        operation = options.operation(OPERATIONS)
        options.ranks(2, 2)
        sizes = workload.sizes or (_ATOMIC_BYTES,)
        atomic = operation.startswith("atomic")
        if any(not 1 <= size <= _MOST for size in sizes) or (atomic and sizes != (_ATOMIC_BYTES,)):
            allowed = f"{_ATOMIC_BYTES}" if atomic else f"1 to {_MOST}"
            raise options.error(f"has a size that {operation} cannot have", f"use {allowed} bytes")
        if workload.samples < _LEAST_SAMPLES:
            raise options.error(
                f"asks for {workload.samples} samples", f"ask for at least {_LEAST_SAMPLES}"
            )
        both = [str(_program(operation, tools)), "-F", "-n", str(workload.samples)]
        both += ["-p", str(options.number("port", _PORT, least=1024, most=65535))]
        both += [] if atomic else ["-s", "$size"]
        both += ["-U"] if operation in _LATENCIES else []
        both += _switches(options, operation)
        return Program(
            client_script([*both, "{server}"], sizes), 2, server=server_script(both, sizes)
        )

    def read(self, workload: Workload, stdout: str) -> Measured:
        name = _PROGRAMS[workload.operation]
        found = by_size(name, stdout)
        same_sizes(name, workload, list(found))
        facts: dict[str, object] = {"program": name, "clock": "counter"}
        for lines in found.values():
            facts |= _settings(lines)
        if workload.operation in _LATENCIES:
            series = [_times(name, size, lines, workload) for size, lines in found.items()]
            return Measured(series=series, facts=facts)
        figures = [
            figure
            for size, lines in found.items()
            for figure in _rates(name, size, lines, workload)
        ]
        return Measured(figures=figures, facts=facts)


def _program(operation: str, tools: Tools) -> Path:
    return debian_program(tools, "perftest", _PROGRAMS[operation], "perftest")


def _switches(options: Options, operation: str) -> list[str]:
    """The program's switches for the workload's options."""
    found: list[str] = []
    if options.given("inline"):
        found += ["-I", str(options.number("inline", 0, least=0, most=4096))]
    if options.flag("events"):
        found.append("-e")
    if options.given("device"):
        device = str(options.workload.options["device"])
        if not device.replace("_", "").replace("-", "").isalnum():
            raise options.error(f"has device: {device!r}", "write its name, such as mlx5_0")
        found += ["-d", device]
    if options.given("gid_index"):
        found += ["-x", str(options.number("gid_index", 0, least=0, most=255))]
    if options.given("mtu"):
        found += ["-m", str(options.number("mtu", 1024, least=256, most=4096))]
    for name, switch in (("bidirectional", "-b"), ("depth", "-t")):
        if options.given(name) and operation not in _BANDWIDTHS:
            raise options.error(f"has the option {name}, but {operation} has none", "leave it out")
        if name == "bidirectional" and options.flag(name):
            found.append(switch)
        elif name == "depth" and options.given(name):
            found += [switch, str(options.number(name, 128, most=32768))]
    return found


_SETTINGS = ("Device", "Transport type", "Connection type", "Link type", "Max inline data", "Mtu")
_VERSION = re.compile(r"\s*(?:perftest )?version\s*:?\s*v?([0-9][\w.+-]{0,30})\s*", re.IGNORECASE)


def _settings(lines: list[str]) -> dict[str, object]:
    """What the program prints about the device, two settings in a line, and about its version, if
    anything.
    """
    found: dict[str, object] = {}
    for line in lines:
        version = _VERSION.fullmatch(line)
        if version is not None:
            found["version"] = version[1]
        for part in line.split("\t"):
            name, colon, value = part.partition(":")
            if colon and name.strip() in _SETTINGS:
                found[name.strip().lower().replace(" ", "_")] = value.strip()
    return found


_COLUMN = re.compile(r"(#\w+)|((?:[\w.%]+ )?\w+)\[([^\]\s]+)\]")
"""Such as `#bytes`, or a name of one or two words with its unit: `BW average[MB/sec]`."""


@dataclass(frozen=True)
class _Row:
    """The table's line with the figures of one size."""

    program: str
    line: str
    head: str
    cells: dict[str, str]
    units: dict[str, str]

    def number(self, column: str) -> float:
        """The number in a column, in the column's unit."""
        if column not in self.cells:
            raise self.refused(f"its table has no column {column}", f"a column {column}")
        return number(self.program, self.cells[column], line=self.line)

    def unit(self, column: str) -> str:
        return self.units.get(column, "")

    def refused(self, why: str, expected: str) -> VicinalError:
        """The error for a table head that cannot be read."""
        return refused(self.program, why, line=self.head, expected=expected)


def _row(name: str, size: int, lines: list[str], workload: Workload) -> _Row:
    """The only line of the table at the end; if all times are printed, an earlier head precedes
    them.

    Warnings may be between head and line.
    """
    heads = [at for at, line in enumerate(lines) if line.strip().startswith("#bytes")]
    expected = "a table with the columns #bytes and #iterations"
    why = f"it prints no line of {workload.samples} times {size} bytes"
    if not heads:
        raise refused(name, why, expected=expected)
    head = lines[heads[-1]]
    columns = _COLUMN.findall(head)
    if _COLUMN.sub("", head).strip():
        raise refused(name, "its table has columns of unknown form", line=head, expected=expected)
    names = [plain or label for plain, label, _ in columns]
    for line in lines[heads[-1] + 1 :]:
        row = line.split()
        if row[:1] != [str(size)]:
            continue
        cells = dict(zip(names, row, strict=False))
        wanted = f"{len(names)} columns, {workload.samples} of #iterations"
        if len(row) != len(names) or "#iterations" not in cells:
            raise refused(name, why, line=line, expected=wanted)
        if count(name, cells["#iterations"], line=line) != workload.samples:
            raise refused(name, why, line=line, expected=wanted)
        units = {label: unit for plain, label, unit in columns if not plain}
        return _Row(name, line, head, cells, units)
    raise refused(name, why, line=head, expected=f"a line below it that begins with {size}")


def _times(name: str, size: int, lines: list[str], workload: Workload) -> Series:
    """Half a round trip of sends and writes, the whole operation of reads and atomics."""
    row = _row(name, size, lines, workload)
    heads = [at for at, line in enumerate(lines) if line.startswith("#, ")]
    if len(heads) != 1:
        raise refused(
            name, f"it did not print all times of {size} bytes", expected="one line '#, usec'"
        )
    unit = _microseconds(name, lines[heads[0]].removeprefix("#, "), lines[heads[0]])
    times: list[float] = []
    for line in lines[heads[0] + 1 :]:
        sample, comma, value = line.partition(", ")
        if not comma:
            break
        if count(name, sample, line=line) != len(times) + 1:
            raise refused(name, f"sample {sample} is out of order", line=line)
        times.append(number(name, value, line=line) * unit)
    if max(times, default=0.0) > _DAY:
        raise refused(name, f"{max(times):g} us cannot be: no launch takes a day")
    # One less, because each time is between two readings of the clock.
    if len(times) != workload.samples - 1:
        raise refused(name, f"it printed {len(times)} times of {workload.samples}")
    least = row.number("t_min") * _microseconds(name, row.unit("t_min"), row.head)
    agree(name, "the least of its times", min(times), least, _DIGITS + 0.005 / min(times))
    longest = row.number("t_max") * _microseconds(name, row.unit("t_max"), row.head)
    nearest = min(times, key=lambda each: abs(each - longest))
    agree(name, "the longest of its times", nearest, longest, _DIGITS + 0.005 / nearest)
    return Series(size, 0, 1, np.rint(np.array(times) * 1000).astype(np.int64))


def _microseconds(name: str, unit: str, line: str) -> float:
    """The number of µs in a unit of the program. Raises VicinalError for cycles and unknown
    units.
    """
    found = in_microseconds(unit)
    if found is None:
        raise refused(name, f"its times are in {unit!r}", line=line, expected="a time, as usec")
    return found


_AVERAGE, _PEAK, _MESSAGES = "BW average", "BW peak", "MsgRate"


def _rates(name: str, size: int, lines: list[str], workload: Workload) -> list[Figure]:
    """Mean rates. The program's MB is 2^20 bytes, which versions since 2024 write MiB."""
    row = _row(name, size, lines, workload)
    unit = row.unit(_AVERAGE)
    each = in_bytes_per_second(unit, binary=True)
    # Both always have the same unit; different units mean that the head was damaged.
    if each is None or row.unit(_PEAK) not in ("", unit):
        raise row.refused(
            "its bandwidth is not in MB a second, nor throughout in another known unit",
            f"{_AVERAGE} in MB/sec, MiB/sec or Gb/sec, and {_PEAK} in the same",
        )
    million = scale(row.unit(_MESSAGES), "pps")
    if million is None:
        raise row.refused("its rate of messages has an unknown unit", f"{_MESSAGES}[Mpps]")
    bandwidth, messages = row.number(_AVERAGE), row.number(_MESSAGES) * (million / 1e6)
    # Two decimals, and six.
    rounding = 0.006 / bandwidth + 6e-7 / messages
    agree(name, "its bandwidth and rate", bandwidth * each, messages * 1e6 * size, rounding)
    return [
        Figure("mean", bandwidth * each / 1e6, "MB/s", size),
        Figure("mean", messages, "M/s", size),
    ]
