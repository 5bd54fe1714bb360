"""Reading what programs of others print: whole lines, tables by their columns' names, and units.

A reader of one program takes what it needs by the names of columns and the units that they have,
because versions add columns, change units and put lines of other programs in between. What it
cannot read is an error that quotes the line.
"""

import re
from collections.abc import Sequence
from math import isfinite

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload

_NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_QUOTED_MOST = 160
"""Characters of a line that an error quotes."""


def refused(
    program: str, why: str, *, line: str | None = None, expected: str | None = None
) -> VicinalError:
    """The error for output that is not whole, cannot be true, or has an unknown form.

    `line` is the line that was read; the error quotes it. `expected` says in words what that line
    should have, or what line is missing; the program is then possibly of a version whose form this
    Vicinal does not know, and the remedy says so.
    """
    found = "" if line is None else f"; it says {line.strip()[:_QUOTED_MOST]!r}"
    wanted = "" if expected is None else f"; expected is {expected}"
    remedy = "look at the output of that trial, and run it again"
    if expected is not None:
        remedy += (
            f"; if this is how that version of {program} prints, use a version that "
            "docs/reference/workloads.md names, and report the output"
        )
    return VicinalError(
        f"what {program} printed is not what it prints when all is well: {why}{found}{wanted}",
        remedy,
    )


def invalid_data(program: str, where: str, line: str) -> VicinalError:
    """The error for a program that checked the data it received, and found them to be wrong.

    `where` says at which size, after a space, or is empty. `line` is what the program printed.
    """
    return VicinalError(
        f"{program} received other data than were sent: its own validation failed{where}; "
        f"it says {line.strip()[:_QUOTED_MOST]!r}",
        "use no figure of that environment, run the workload with another MPI library or provider "
        "to find which one damages data, and report it",
    )


def whole_lines(text: str) -> list[str]:
    """Its lines but for a last one without an end, which may have been cut in a number."""
    return [line.rstrip("\r") for line in text.split("\n")[:-1]]


def number(program: str, text: str, *, zero: bool = False, line: str | None = None) -> float:
    """A positive number, or with `zero` one that is not negative; no NaN and no infinity.

    Raises VicinalError otherwise, which quotes `line` where the number is from.
    """
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not isfinite(value) or value < 0 or (value == 0 and not zero):
        raise refused(program, f"{text[:40]!r} where a number should be", line=line)
    return value


def count(program: str, text: str, *, line: str | None = None) -> int:
    """A whole number from 0. Raises VicinalError otherwise, which quotes `line`."""
    if not _COUNT.fullmatch(text):
        raise refused(program, f"{text[:40]!r} where a whole number should be", line=line)
    return int(text)


def is_number(text: str) -> bool:
    """Whether a cell of a table has the form of a number, as number() takes it."""
    return _NUMBER.fullmatch(text) is not None


def agree(program: str, what: str, left: float, right: float, within: float) -> None:
    """Raise VicinalError unless two values that say the same differ by a part of `within` at most.

    Programs print a rate and the time that it comes from: where a digit was damaged they disagree.
    """
    if abs(left - right) > within * max(abs(left), abs(right)):
        raise refused(program, f"{what} do not agree ({left:g} and {right:g})")


def single(program: str, what: str, found: Sequence[str], *, expected: str | None = None) -> str:
    """The only one that there is. Raises VicinalError otherwise, with what line was `expected`."""
    if len(found) != 1:
        raise refused(program, f"it says {what} {len(found)} times and not once", expected=expected)
    return found[0]


def same_sizes(program: str, workload: Workload, found: Sequence[int]) -> None:
    """Raise VicinalError unless the sizes are those that the workload asks for, each once."""
    if not found or len(set(found)) < len(found):
        raise refused(program, "it has no sizes, or one of them twice")
    missing = set(workload.sizes) - set(found)
    if missing:
        raise refused(program, f"it has no figure of {min(missing)} bytes")


# Units, in the spellings of the programs. None stands for a unit that is not known.

_MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "ns": 1e-3}
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"K": 1 << 10, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_VOLUME_RATE = re.compile(r"([kKMGT]?)(i?)(b|bits?|B|[Bb]ytes?)(?:/s|/sec|ps)")


def in_microseconds(unit: str) -> float | None:
    """How many µs a unit of time is: s, sec, ms, msec, us, usec, µs, ns or nsec."""
    return _MICROSECONDS.get(unit.removesuffix("ec"))


def scale(unit: str, base: str) -> float | None:
    """How many of `base` a unit is: the unit is `base` after k, M, G, T, P or nothing."""
    return _SCALES.get(unit.removesuffix(base)) if unit.endswith(base) else None


def in_bytes_per_second(unit: str, *, binary: bool = False) -> float | None:
    """How many bytes a second a unit of bandwidth is: MB/s, MiB/sec, Mbytes/sec, Gb/sec, Gbps, ...

    A small b or `bit` is a bit, and units of bits are powers of 1000. With `binary` units of bytes
    are powers of 1024 without an i in them, too: programs differ in what they call MB.
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
