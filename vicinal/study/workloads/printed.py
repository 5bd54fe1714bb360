"""Reading what programs of others print: whole lines, numbers that can be true, or an error."""

import re
from collections.abc import Sequence
from math import isfinite

from vicinal.errors import VicinalError
from vicinal.study.file.model import Workload

_NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)


def refused(program: str, why: str) -> VicinalError:
    """For output that is not whole or cannot be true."""
    return VicinalError(
        f"what {program} printed is not what it prints when all is well: {why}",
        "look at the output of that trial, and run it again",
    )


def whole_lines(text: str) -> list[str]:
    """Its lines but for a last one without an end, which may have been cut in a number."""
    return [line.rstrip("\r") for line in text.split("\n")[:-1]]


def number(program: str, text: str, *, zero: bool = False) -> float:
    """A positive number, or with `zero` one that is not negative; no NaN and no infinity."""
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not isfinite(value) or value < 0 or (value == 0 and not zero):
        raise refused(program, f"{text[:40]!r} where a number should be")
    return value


def count(program: str, text: str) -> int:
    """A whole number from 0."""
    if not _COUNT.fullmatch(text):
        raise refused(program, f"{text[:40]!r} where a whole number should be")
    return int(text)


def agree(program: str, what: str, left: float, right: float, within: float) -> None:
    """Raise VicinalError unless two values that say the same differ by a part of `within` at most.

    Programs print a rate and the time that it comes from: where a digit was damaged they disagree.
    """
    if abs(left - right) > within * max(abs(left), abs(right)):
        raise refused(program, f"{what} do not agree ({left:g} and {right:g})")


def single(program: str, what: str, found: Sequence[str]) -> str:
    """The only one that there is."""
    if len(found) != 1:
        raise refused(program, f"it says {what} {len(found)} times and not once")
    return found[0]


def same_sizes(program: str, workload: Workload, found: Sequence[int]) -> None:
    """Raise VicinalError unless the sizes are those that the workload asks for, each once."""
    if not found or len(set(found)) < len(found):
        raise refused(program, "it has no sizes, or one of them twice")
    missing = set(workload.sizes) - set(found)
    if missing:
        raise refused(program, f"it has no figure of {min(missing)} bytes")
