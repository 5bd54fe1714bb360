"""The driver of sockets: TCP over the environment's network, by sockperf and iperf3."""

import json
import re
from typing import Any

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
    in_microseconds,
    number,
    refused,
    same_sizes,
    single,
)
from vicinal.labs.study.workloads.remote import by_size, client_script, server_script
from vicinal.mpi.libraries import Mpi

OPERATIONS = ("latency", "bandwidth")
_PROGRAMS = {"latency": "sockperf", "bandwidth": "iperf3"}
_PORTS = {"latency": 11111, "bandwidth": 5201}
_SIZES = {"latency": (64,), "bandwidth": (131072,)}
"""Default sizes of a message, or of a write into the socket."""
_LEAST = {"latency": 14, "bandwidth": 1}
_MOST = {"latency": 65507, "bandwidth": 1 << 20}
_COLUMN = re.compile(r"(packet|txTime|rxTime|latency|rtt)(?:\((\w{1,5})\))?")
_HALVES = {"latency": 2.0, "rtt": 1.0}
"""How many of a column's times make a round trip."""
_SOCKPERF_VERSION = re.compile(r"sockperf: .*== version #(\S{1,40}) ==")
_IPERF_VERSION = re.compile(r"iperf (\S{1,40})")

_LOG = "sockperf.log"
"""A separate file, because sockperf would truncate its own output if it were the log."""

_SOCKPERF_SERVER = """
trap 'kill $! 2>/dev/null' EXIT
trap 'exit 0' TERM INT HUP
"$0" server --tcp -i 0.0.0.0 -p {port} >/dev/null &
wait $!
"""


class Sockets:
    """Every message's round trip, or the rate that the receiver measured."""

    name = "sockets"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the program exists; no MPI library is needed."""
        del mpi
        program = _PROGRAMS.get(workload.operation)
        try:
            if program is not None:
                debian_program(tools, program, program, program)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """A server on the first node, and a client for each size on the last node."""
        del mpi
        options = Options(workload, ("port",))
        operation = options.operation(OPERATIONS)
        options.ranks(2, 2)
        sizes = workload.sizes or _SIZES[operation]
        if any(not _LEAST[operation] <= size <= _MOST[operation] for size in sizes):
            raise options.error(
                f"has a size that {_PROGRAMS[operation]} cannot send",
                f"use sizes from {_LEAST[operation]} to {_MOST[operation]} bytes",
            )
        port = str(options.number("port", _PORTS[operation], least=1024, most=65535))
        name = _PROGRAMS[operation]
        path = str(debian_program(tools, name, name, name))
        seconds = str(max(1, round(workload.seconds)))
        # Without a server both end with status 0: sockperf has no log, iperf3 an error in JSON.
        if operation == "latency":
            client = [path, "ping-pong", "--tcp", "-i", "{server}", "-p", port, "-t", seconds]
            client += ["-m", "$size", "--full-log", _LOG]
            script = client_script(
                client, sizes, good=f"[ -s {_LOG} ]", then=f"cat {_LOG} && rm {_LOG}"
            )
            server = ["/bin/sh", "-c", _SOCKPERF_SERVER.replace("{port}", port), path]
        else:
            client = [path, "-c", "{server}", "-p", port, "-t", seconds, "-l", "$size", "-J"]
            script = client_script(client, sizes, good="! grep -q '\"error\"' client.out")
            server = server_script([path, "-s", "-1", "-p", port, "-J"], sizes)
        return Program(script, 2, server=server)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Round trips as samples with two messages each; rates as figures."""
        name = _PROGRAMS[workload.operation]
        found = by_size(name, stdout)
        same_sizes(name, workload, list(found))
        if workload.operation == "latency":
            series = [_round_trips(size, lines, workload.samples) for size, lines in found.items()]
            facts: dict[str, object] = {"program": name, "clock": "counter"}
            for said in (line for lines in found.values() for line in lines):
                if version := _SOCKPERF_VERSION.match(said):
                    facts["version"] = version[1]
            messages = sum(2.0 * _observations(lines) for lines in found.values())
            return Measured(series=series, facts=facts, work=messages)
        facts = {"program": name, "clock": "system"}
        figures, arrived = [], 0.0
        for size, lines in found.items():
            figure, volume, said_version = _rate(size, lines)
            figures.append(figure)
            arrived += volume
            if said_version is not None:
                facts["version"] = said_version
        return Measured(figures=figures, facts=facts, work=arrived)


def _round_trips(size: int, lines: list[str], most: int) -> Series:
    """Read sockperf's log of all packets: a round trip, or half of it, and two times for each
    packet.

    The columns' names say which of them the log has, and the units.
    """
    heads = [at for at, line in enumerate(lines) if line.startswith("packet, ")]
    if len(heads) != 1:
        raise refused(
            "sockperf",
            f"its log of {size} bytes is missing",
            expected="one line 'packet, txTime(sec), rxTime(sec), latency(usec)'",
        )
    columns = _log_columns(lines[heads[0]])
    at = {name: index for index, name in enumerate(columns)}
    which = "latency" if "latency" in at else "rtt"
    total = _observations(lines)
    times: list[int] = []
    for row in lines[heads[0] + 1 :]:
        cells = row.split(", ")
        if len(cells) != len(columns):
            break
        sent, received = (
            number("sockperf", cells[at[name]], line=row) for name in ("txTime", "rxTime")
        )
        logged = number("sockperf", cells[at[which]], zero=True, line=row) * columns[which]
        trip = round((received - sent) * (columns["rxTime"] * 1e3))
        # Exact to a nanosecond, except for the rounding of seconds to 64 bits.
        order = count("sockperf", cells[at["packet"]], line=row)
        if order != len(times) or abs(trip - 1000 * _HALVES[which] * logged) > 4:
            raise refused(
                "sockperf", f"packet {order} is out of order, or its times disagree", line=row
            )
        times.append(trip)
    if len(times) != total:
        raise refused("sockperf", f"it logged {len(times)} packets of {total}")
    return Series(size, 0, 2, np.array(times[:most], dtype=np.int64))


def _log_columns(head: str) -> dict[str, float]:
    """The log's columns by name, with the number of µs in their units; `packet` has no unit.

    Raises VicinalError for an unknown name or unit.
    """
    found: dict[str, float] = {}
    for cell in head.split(", "):
        column = _COLUMN.fullmatch(cell.strip())
        unit = None if column is None else 1.0 if column[2] is None else in_microseconds(column[2])
        if column is not None and unit is not None:
            found[column[1]] = unit
    needed = {"packet", "txTime", "rxTime"}
    trips = found.keys() & _HALVES.keys()
    if (
        len(found) != len(head.split(", "))
        or not found.keys() >= needed
        or not trips
        or found["txTime"] != found["rxTime"]
    ):
        raise refused(
            "sockperf",
            "its log has unknown columns",
            line=head,
            expected="packet, txTime, rxTime, and latency or rtt, with units of time",
        )
    return found


def _observations(lines: list[str]) -> int:
    """The number of packets in the log, which sockperf prints before it."""
    found = {line.partition("ReceivedMessages=")[2] for line in lines if "[Valid Duration]" in line}
    total = count("sockperf", single("sockperf", "the number of packets", sorted(found)))
    if total == 0:
        raise refused("sockperf", "no packet came back")
    return total


def _rate(size: int, lines: list[str]) -> tuple[Figure, float, str | None]:
    """The rate at the receiver, the bytes that arrived, and the version of iperf3.

    Lines before and after the JSON are another program's.
    """
    first = next((at for at, line in enumerate(lines) if line.startswith("{")), 0)
    last = max((at for at, line in enumerate(lines) if line.startswith("}")), default=len(lines))
    try:
        output = json.loads("\n".join(lines[first : last + 1]))
        if "error" in output:
            raise refused("iperf3", str(output["error"])[:200])
        arrived = output["end"]["sum_received"]
        seconds, sent = _value(arrived["seconds"]), _value(arrived["bytes"])
        if output["start"]["test_start"]["blksize"] != size:
            raise refused("iperf3", f"it did not write {size} bytes at a time")
        agree(
            "iperf3",
            "rate and volume",
            _value(arrived["bits_per_second"]),
            8 * sent / seconds,
            1e-6,
        )
        version = _IPERF_VERSION.fullmatch(str(output["start"].get("version", "")))
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        # An error quotes a line only for text that is not JSON; it names a missing value.
        at = first + error.lineno - 1 if isinstance(error, json.JSONDecodeError) else len(lines)
        raise refused(
            "iperf3",
            f"not the JSON that iperf3 prints ({type(error).__name__}: {str(error)[:80]})",
            line=lines[at] if at < len(lines) else None,
            expected="an object with start.test_start.blksize, and with seconds, bytes and "
            "bits_per_second in end.sum_received",
        ) from error
    figure = Figure("mean", sent / seconds / 1e6, "MB/s", size)
    return figure, sent, None if version is None else version[1]


def _value(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number")
    return number("iperf3", repr(value))
