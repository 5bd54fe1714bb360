"""Reads the output of third-party programs: complete lines, tables by their columns' names, and
units.

Versions add columns, change units and put lines of other programs in between. So a reader takes
values by the names and units of columns. An error for output that cannot be read quotes the line.
"""

import re
from collections.abc import Sequence
from math import isfinite

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload

_NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_QUOTED_MOST = 160
"""Characters of a line that an error quotes, at most."""


def refused(
    program: str, why: str, *, line: str | None = None, expected: str | None = None
) -> VicinalError:
    """The error for output that is incomplete, cannot be true, or has an unknown form.

    The error quotes `line`, the line that was read. `expected` says in words what that line should
    contain, or which line is missing. The remedy then says that the program's version may print a
    form that this Vicinal does not know.
    """
    found = "" if line is None else f"; the line is {line.strip()[:_QUOTED_MOST]!r}"
    wanted = "" if expected is None else f"; expected {expected}"
    remedy = "read the output of the trial, and run the trial again"
    if expected is not None:
        remedy += (
            f"; if this version of {program} always prints so, use a version that "
            "docs/reference/study-file.md names, and report the output"
        )
    return VicinalError(
        f"{program} printed unexpected output: {why}{found}{wanted}",
        remedy,
    )


def invalid_data(program: str, where: str, line: str) -> VicinalError:
    """The error for a program that checked the data that it received, and found wrong data.

    `where` names the size after a space, or is empty. `line` is what the program printed.
    """
    return VicinalError(
        f"{program} received other data than were sent: its own validation failed{where}; "
        f"the line is {line.strip()[:_QUOTED_MOST]!r}",
        "use no value of that environment, run the workload with another MPI library or provider "
        "to find out which one damages data, and report it",
    )


def whole_lines(text: str) -> list[str]:
    """The complete lines of a text. A last line without an end is dropped, because it may be cut
    within a number.
    """
    return [line.rstrip("\r") for line in text.split("\n")[:-1]]


def number(program: str, text: str, *, zero: bool = False, line: str | None = None) -> float:
    """A positive finite number, or with `zero` also 0.

    Raises VicinalError otherwise; the error quotes `line`, from which the number comes.
    """
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not isfinite(value) or value < 0 or (value == 0 and not zero):
        raise refused(program, f"{text[:40]!r} instead of a number", line=line)
    return value


def count(program: str, text: str, *, line: str | None = None) -> int:
    """A whole number from 0. Raises VicinalError otherwise; the error quotes `line`."""
    if not _COUNT.fullmatch(text):
        raise refused(program, f"{text[:40]!r} instead of a whole number", line=line)
    return int(text)


def is_number(text: str) -> bool:
    """Whether the text of a table's cell is a number for number()."""
    return _NUMBER.fullmatch(text) is not None


def agree(program: str, what: str, left: float, right: float, within: float) -> None:
    """Raise VicinalError if two values of the same quantity differ by more than the part `within`.

    Programs print a rate and the time from which it is computed. If a digit was damaged, the two
    disagree.
    """
    if abs(left - right) > within * max(abs(left), abs(right)):
        raise refused(program, f"{what} do not agree ({left:g} and {right:g})")


def single(program: str, what: str, found: Sequence[str], *, expected: str | None = None) -> str:
    """The only element of `found`. Raises VicinalError otherwise; `expected` says which line is
    missing.
    """
    if len(found) != 1:
        raise refused(
            program, f"it prints {what} {len(found)} times instead of once", expected=expected
        )
    return found[0]


def same_sizes(program: str, workload: Workload, found: Sequence[int]) -> None:
    """Raise VicinalError unless the output has each size of the workload exactly once."""
    if not found or len(set(found)) < len(found):
        raise refused(program, "it prints no sizes, or a size twice")
    missing = set(workload.sizes) - set(found)
    if missing:
        raise refused(program, f"it prints no value for {min(missing)} bytes")


# Units as the programs spell them. The functions return None for an unknown unit.

_MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "ns": 1e-3}
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"K": 1 << 10, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_VOLUME_RATE = re.compile(r"([kKMGT]?)(i?)(b|bits?|B|[Bb]ytes?)(?:/s|/sec|ps)")


def in_microseconds(unit: str) -> float | None:
    """The number of µs in a unit of time: s, sec, ms, msec, us, usec, µs, ns or nsec."""
    return _MICROSECONDS.get(unit.removesuffix("ec"))


def scale(unit: str, base: str) -> float | None:
    """The number of `base` in a unit, which is `base` after k, M, G, T, P or nothing."""
    return _SCALES.get(unit.removesuffix(base)) if unit.endswith(base) else None


def in_bytes_per_second(unit: str, *, binary: bool = False) -> float | None:
    """The number of bytes a second in a unit of bandwidth: MB/s, MiB/sec, Mbytes/sec, Gb/sec, Gbps,
    ...

    A small b or `bit` is a bit, and units of bits are powers of 1000. With `binary`, units of bytes
    without an i are powers of 1024 too, because programs differ in what they call MB.
    """
    found = _VOLUME_RATE.fullmatch(unit)
    if found is None:
        return None
    prefix, power_of_two, what = found.groups()
    if what == "b" or what.startswith("bit"):
        return None if power_of_two else _SCALES[prefix] / 8
    if power_of_two and not prefix:
        return None
    return float(_BINARY[prefix]) if prefix and (power_of_two or binary) else _SCALES[prefix]
