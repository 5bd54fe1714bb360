"""Reading what the program record prints: every iteration's time of every rank.

Its output is whole or it is refused: the last line has the number of lines and their CRC-32.
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
from vicinal.labs.study.result.samples import Series

FORMAT = 1
"""Of the program's output, the newest that can be read."""

_WIDTHS = (2, 4, 8)
"""Bytes of a sample."""
_COUNT_MAX = 2**31 - 1
_BYTES_MAX = 2**40

_DAMAGED = "run it again; if it happens again, report it with that output"


@dataclass(frozen=True)
class Clock:
    """What a rank took its times with."""

    name: str
    """`counter`, the processor's time stamp counter, or `system`, CLOCK_MONOTONIC_RAW."""
    nanoseconds_per_tick: float
    calibrated_seconds: float
    """How long the counter ran beside the system's clock for that to be found out."""
    recording_ns: float
    """What recording added to a sample, measured with iterations that do nothing."""
    iteration_ns: float
    """And to an iteration: more than that where samples are apart."""


@dataclass(frozen=True)
class Recording:
    """One start of the program, whole."""

    operation: str
    sample: str
    """What one sample is, in words."""
    apart: bool
    """Whether there was a barrier before each sample; else one begins where another ended."""
    synchronization: str | None
    """Of one-sided operations: flush, lock, pscw or fence."""
    mpi: str
    """The MPI library's own description of itself."""
    hosts: list[str]
    """Host name of each rank."""
    clocks: list[Clock]
    """Of each rank."""
    series: list[Series]


def read_recording(text: str) -> Recording:
    """What the program wrote to its standard output.

    Raises VicinalError if that is not whole, damaged, or of a newer program.
    """
    lines = list(_json_lines(text))
    if not any(line.startswith('{"end"') for line in lines[-1:]):
        raise VicinalError(
            "the program record ended before all of its samples were out",
            "look at what it wrote to its standard error, and run it again",
        )
    try:
        run, head = json.loads(lines[0]), json.loads(lines[1])
        if _whole(head["format"]) > FORMAT:
            raise VicinalError(
                f"the program record writes a newer format ({head['format']}) than this Vicinal "
                f"reads ({FORMAT})",
                "use the program of the same version: make programs",
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
            f"what the program record printed makes no sense ({type(error).__name__}: {error})",
            _DAMAGED,
        ) from error


def _json_lines(text: str) -> Iterator[str]:
    """Lines that are the program's; an MPI may print others."""
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
            "what the program record printed was damaged on its way: its checksum does not fit",
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
        raise ValueError(f"{len(values)} samples where {record['samples']} are said to be")
    if values.min() < 0:  # more than 63 bits
        raise ValueError("a time of more than 292 years")
    return Series(
        size=_whole(record["size"], most=_BYTES_MAX),
        rank=_whole(record["rank"]),
        messages=_whole(record["messages"], least=1),
        nanoseconds=values,
    )


def _whole(value: Any, least: int = 0, most: int = _COUNT_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no count")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
