"""The driver of Vicinal's own program record, which times each iteration of one MPI operation.

Incomplete output is refused: the last line contains the number of lines and their CRC-32.
"""

import binascii
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import ProgramFact
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.options import Options
from vicinal.mpi.libraries import Mpi, installation

PAIRS = ("latency", "bandwidth", "bidirectional")
"""Operations between pairs of a rank of the first half and a rank of the second half."""
REMOTE = ("put", "get", "accumulate", "put-bidirectional")
"""One-sided operations between the same pairs."""
COLLECTIVES = ("barrier", "bcast", "allgather", "allreduce", "alltoall")
"""Operations of all ranks; each rank records."""

_SYNCHRONIZATIONS = ("flush", "lock", "pscw", "fence")
_WINDOWS = ("bandwidth", "bidirectional", *REMOTE)
_NUMBERS = ("allreduce", "accumulate")
_NUMBER_BYTES = 8
_SIZES_MAX = 64
_BYTES_MAX = 2**31 - 1
_SAMPLES_MAX = 100_000_000

FORMAT = 1
"""The newest format of the program's output that can be read."""

_WIDTHS = (2, 4, 8)
"""Bytes of a sample."""
_COUNT_MAX = 2**31 - 1
_RECORDED_BYTES_MAX = 2**40

_DAMAGED = "run the trial again; if this happens again, report it with the output"


@dataclass(frozen=True)
class Clock:
    """The clock of a rank."""

    name: str
    """`counter`, the processor's time stamp counter, or `system`, CLOCK_MONOTONIC_RAW."""
    nanoseconds_per_tick: float
    calibrated_seconds: float
    """How long the counter was compared with the system's clock."""
    recording_ns: float
    """What recording adds to a sample, measured with empty iterations."""
    iteration_ns: float
    """What recording adds to an iteration: more than recording_ns if samples are apart."""


@dataclass(frozen=True)
class Recording:
    """One complete run of the program."""

    operation: str
    sample: str
    """What one sample is, in words."""
    apart: bool
    """Whether a barrier preceded each sample; otherwise each sample begins where the previous one
    ended."""
    synchronization: str | None
    """flush, lock, pscw or fence; None for operations that are not one-sided."""
    mpi: str
    """The MPI library's own description of itself."""
    hosts: list[str]
    """Host name of each rank."""
    clocks: list[Clock]
    """The clock of each rank."""
    series: list[Series]


class Record:
    """Times of single iterations, in nanoseconds."""

    name = "record"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        del workload, tools
        try:
            installation(mpi)
            mpi_program(mpi, "record")
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """One start of the program for all sizes."""
        del tools
        options = Options(workload, ("window", "synchronization", "clock"))
        operation = options.operation((*PAIRS, *REMOTE, *COLLECTIVES))
        paired = operation not in COLLECTIVES
        ranks = options.ranks(2 if paired else 1, multiple=2 if paired else 1)
        _check_sizes(options, operation)
        if not 1 <= workload.samples <= _SAMPLES_MAX or not workload.seconds > 0:
            raise options.error(
                f"asks for {workload.samples} samples in {workload.seconds} s",
                f"ask for 1 to {_SAMPLES_MAX} samples in more than 0 s",
            )
        arguments = [operation]
        if workload.sizes:
            arguments += ["--sizes", ",".join(map(str, workload.sizes))]
        arguments += ["--samples", str(workload.samples), "--seconds", f"{workload.seconds:g}"]
        if options.given("window"):
            _only_for(options, "window", operation, _WINDOWS)
            arguments += ["--window", str(options.number("window", 64, most=1 << 20))]
        if operation in REMOTE:
            default = "pscw" if operation == "put-bidirectional" else "flush"
            arguments += [
                "--synchronization",
                options.choice("synchronization", _synchronizations(operation), default),
            ]
        elif options.given("synchronization"):
            _only_for(options, "synchronization", operation, REMOTE)
        arguments += ["--clock", options.choice("clock", ("auto", "counter", "system"), "auto")]
        return Program([str(mpi_program(mpi, "record")), *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """All samples, after a check that operation, ranks and sizes are the workload's."""
        recording = read_recording(stdout)
        _check_answer(workload, recording)
        facts: dict[str, object] = {
            "program": "record",
            "sample": recording.sample,
            ProgramFact.APART.value: recording.apart,
            ProgramFact.CLOCK.value: ", ".join(sorted({each.name for each in recording.clocks})),
            ProgramFact.RECORDING.value: max(each.recording_ns for each in recording.clocks),
            "synchronization": recording.synchronization,
            "mpi": recording.mpi,
            "hosts": recording.hosts,
            "clocks": [_clock_facts(clock) for clock in recording.clocks],
        }
        return Measured(series=recording.series, facts=facts)


def _synchronizations(operation: str) -> tuple[str, ...]:
    if operation == "put-bidirectional":
        return ("pscw", "fence")
    return _SYNCHRONIZATIONS


def _only_for(options: Options, name: str, operation: str, operations: tuple[str, ...]) -> None:
    if operation not in operations:
        raise options.error(
            f"has the option {name}, but {operation} has none",
            f"leave it out: only {', '.join(operations)} have it",
        )


def _check_sizes(options: Options, operation: str) -> None:
    sizes = options.workload.sizes
    if operation == "barrier":
        options.no_sizes()
    if len(sizes) > _SIZES_MAX or len(set(sizes)) < len(sizes):
        raise options.error(
            f"has {len(sizes)} sizes, {len(set(sizes))} of them different",
            f"give it at most {_SIZES_MAX}, each once",
        )
    least = 1 if operation in REMOTE else 0
    if any(not least <= size <= _BYTES_MAX for size in sizes):
        raise options.error(
            f"has a size that {operation} cannot have", f"sizes are from {least} to {_BYTES_MAX}"
        )
    if operation in _NUMBERS and any(size % _NUMBER_BYTES for size in sizes):
        raise options.error(
            f"has a size that is not a multiple of {_NUMBER_BYTES} bytes",
            f"{operation} adds numbers of {_NUMBER_BYTES} bytes: give multiples of that size",
        )


def _check_answer(workload: Workload, recording: Recording) -> None:
    """Raise VicinalError if a complete recording is of another operation, or of other ranks or
    sizes.
    """
    operation, ranks = workload.operation, workload.ranks
    recording_ranks = range(ranks) if operation in COLLECTIVES else range(ranks // 2)
    sizes = list(workload.sizes)
    if operation == "barrier":
        sizes = [0]
    elif not sizes:
        sizes = list(dict.fromkeys(each.size for each in recording.series))
    wanted = [(size, rank) for size in sizes for rank in recording_ranks]
    found = [(each.size, each.rank) for each in recording.series]
    if recording.operation != operation:
        problem = f"{recording.operation} instead of {operation}"
    elif len(recording.hosts) != ranks:
        problem = f"{len(recording.hosts)} ranks instead of {ranks}"
    elif not found or found != wanted:
        problem = "other sizes or ranks than were asked for"
    else:
        return
    raise VicinalError(
        f"the program record of the workload {workload.name} measured {problem}",
        "check whether another program wrote to the job's standard output, and run the trial again",
    )


def _clock_facts(clock: Clock) -> dict[str, object]:
    return {
        "clock": clock.name,
        "nanoseconds_per_tick": clock.nanoseconds_per_tick,
        "calibrated_seconds": clock.calibrated_seconds,
        "recording_ns": clock.recording_ns,
        "iteration_ns": clock.iteration_ns,
    }


def read_recording(text: str) -> Recording:
    """Read the program's standard output.

    Raises VicinalError if the output is incomplete, damaged, or of a newer program.
    """
    lines = list(_json_lines(text))
    if not any(line.startswith('{"end"') for line in lines[-1:]):
        raise VicinalError(
            "the program record ended before it printed all samples",
            "read its standard error, and run the trial again",
        )
    try:
        run, head = json.loads(lines[0]), json.loads(lines[1])
        if _whole(head["format"]) > FORMAT:
            raise VicinalError(
                f"the program record writes a newer format ({head['format']}) than this Vicinal "
                f"reads ({FORMAT})",
                "build the program of this version: make programs",
            )
        _check(lines[2:-1], json.loads(lines[-1]))
        ranks = _whole(run["ranks"])
        hosts = [_word(host) for host in run["hosts"]]
        if len(hosts) != ranks:
            raise ValueError(f"{len(hosts)} hosts of {ranks} ranks")
        way = head["synchronization"]
        return Recording(
            operation=_word(head["operation"]),
            sample=_word(head["sample"]),
            apart=head["apart"] is True,
            synchronization=None if way is None else _word(way),
            mpi=_word(run["mpi"]),
            hosts=hosts,
            clocks=[_clock(json.loads(line)) for line in lines[2 : 2 + ranks]],
            series=[_series(json.loads(line)) for line in lines[2 + ranks : -1]],
        )
    except (ValueError, KeyError, TypeError, IndexError, ArithmeticError, RecursionError) as error:
        raise VicinalError(
            f"the output of the program record cannot be read ({type(error).__name__}: {error})",
            _DAMAGED,
        ) from error


def _json_lines(text: str) -> Iterator[str]:
    """The program's lines; an MPI library may print other lines."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if text.startswith("{", start):
            yield text[start:end]
        start = end + 1


def _check(lines: list[str], end: dict[str, Any]) -> None:
    crc = 0
    for line in lines:
        crc = zlib.crc32(b"\n", zlib.crc32(line.encode(), crc))
    if (len(lines), crc) != (end["lines"], end["crc32"]):
        raise VicinalError(
            "the output of the program record was damaged: its checksum does not match",
            _DAMAGED,
        )


def _clock(record: dict[str, Any]) -> Clock:
    return Clock(
        name=_word(record["clock"]),
        nanoseconds_per_tick=_number(record["nanoseconds_per_tick"]),
        calibrated_seconds=_number(record["calibrated_seconds"]),
        recording_ns=_number(record["recording_ns"]),
        iteration_ns=_number(record["iteration_ns"]),
    )


def _series(record: dict[str, Any]) -> Series:
    if _whole(record["width"]) not in _WIDTHS:
        raise ValueError(f"samples of {record['width']} bytes")
    raw = binascii.a2b_base64(record["nanoseconds"])
    values = np.frombuffer(raw, dtype=f"<u{record['width']}").astype(np.int64)
    if len(values) != _whole(record["samples"]) or len(values) == 0:
        raise ValueError(f"{len(values)} samples instead of {record['samples']}")
    if values.min() < 0:  # more than 63 bits
        raise ValueError("a time of more than 292 years")
    return Series(
        size=_whole(record["size"], most=_RECORDED_BYTES_MAX),
        rank=_whole(record["rank"]),
        messages=_whole(record["messages"], least=1),
        nanoseconds=values,
    )


def _whole(value: Any, least: int = 0, most: int = _COUNT_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is not a count")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value
