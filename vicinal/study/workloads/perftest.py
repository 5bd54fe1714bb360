"""The driver of perftest: operations of RDMA verbs without MPI, between two nodes.

Latencies are samples: the program prints all of them (`-U`). Its own mean and maximum leave the two
longest out; ours do not. Its JSON is none that a reader of JSON takes, so its table is read.
"""

from pathlib import Path

import numpy as np

from vicinal.errors import VicinalError
from vicinal.mpi.libraries import Mpi
from vicinal.study.file.model import Workload
from vicinal.study.result.layout import Figure
from vicinal.study.result.samples import Series
from vicinal.study.workloads.driver import Measured, Program, Tools
from vicinal.study.workloads.installed import debian_program
from vicinal.study.workloads.options import Options
from vicinal.study.workloads.printed import agree, count, number, refused, same_sizes
from vicinal.study.workloads.remote import by_size, client_script, server_script

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
_MIB = float(1 << 20)
_DIGITS = 1e-4
"""To which part values agree that are printed with six digits, or two behind the point."""


class Perftest:
    """Every operation's time, or the mean rate of all."""

    name = "perftest"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether program and device are there; no MPI is needed."""
        del mpi
        try:
            if workload.operation in _PROGRAMS:
                _program(workload.operation, tools)
        except VicinalError as error:
            return str(error)
        if "device" not in workload.options and not (_DEVICES.is_dir() and any(_DEVICES.iterdir())):
            return (
                "this host has no RDMA device: "
                "where virtual machines have one, name it by the option device (`device: rxe0`)"
            )
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """A pair for each size."""
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
        """What the client printed."""
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
    """Of the command line, for what the workload says."""
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
            raise options.error(f"has the option {name}, and {operation} has none", "leave it out")
        if name == "bidirectional" and options.flag(name):
            found.append(switch)
        elif name == "depth" and options.given(name):
            found += [switch, str(options.number(name, 128, most=32768))]
    return found


_SETTINGS = ("Device", "Transport type", "Connection type", "Link type", "Max inline data", "Mtu")


def _settings(lines: list[str]) -> dict[str, object]:
    """What it says of the device, two settings in a line."""
    found: dict[str, object] = {}
    for line in lines:
        for part in line.split("\t"):
            name, colon, value = part.partition(":")
            if colon and name.strip() in _SETTINGS:
                found[name.strip().lower().replace(" ", "_")] = value.strip()
    return found


def _row(name: str, size: int, lines: list[str], workload: Workload, cells: int) -> list[str]:
    """Of the table at the end, the only line; where it prints all times, a head is before them."""
    heads = [at for at, line in enumerate(lines) if line.strip().startswith("#bytes")]
    rows = [line.split() for line in lines[heads[-1] + 1 :]] if heads else []
    row = next((row for row in rows if row[:1] == [str(size)]), [])
    if len(row) != cells or count(name, row[1]) != workload.samples:
        raise refused(name, f"it has no line of {workload.samples} times {size} bytes")
    return row


def _times(name: str, size: int, lines: list[str], workload: Workload) -> Series:
    """Half a round trip of sends and writes, the whole operation of reads and atomics."""
    row = _row(name, size, lines, workload, cells=9)
    if lines.count("#, usec") != 1:
        raise refused(name, f"it did not print all times of {size} bytes")
    times: list[float] = []
    for line in lines[lines.index("#, usec") + 1 :]:
        place, comma, microseconds = line.partition(", ")
        if not comma:
            break
        if count(name, place) != len(times) + 1:
            raise refused(name, f"sample {place} is out of order")
        times.append(number(name, microseconds))
    if max(times, default=0.0) > _DAY:
        raise refused(name, f"{max(times):g} us cannot be: no launch takes a day")
    # Between so many readings of the clock.
    if len(times) != workload.samples - 1:
        raise refused(name, f"it printed {len(times)} times of {workload.samples}")
    agree(
        name,
        "the least of its times",
        min(times),
        number(name, row[2]),
        _DIGITS + 0.005 / min(times),
    )
    longest = number(name, row[3])
    nearest = min(times, key=lambda each: abs(each - longest))
    agree(name, "the longest of its times", nearest, longest, _DIGITS + 0.005 / nearest)
    return Series(size, 0, 1, np.rint(np.array(times) * 1000).astype(np.int64))


def _rates(name: str, size: int, lines: list[str], workload: Workload) -> list[Figure]:
    """Means; its MB is 2^20 bytes."""
    if not any("BW average[MB/sec]" in line for line in lines):
        raise refused(name, "its bandwidth is not in MB a second")
    row = _row(name, size, lines, workload, cells=5)
    bandwidth, messages = number(name, row[3]), number(name, row[4])
    # Two digits behind the point, and six.
    rounding = 0.006 / bandwidth + 6e-7 / messages
    agree(name, "its bandwidth and rate", bandwidth * _MIB, messages * 1e6 * size, rounding)
    return [
        Figure("mean", bandwidth * _MIB / 1e6, "MB/s", size),
        Figure("mean", messages, "M/s", size),
    ]
