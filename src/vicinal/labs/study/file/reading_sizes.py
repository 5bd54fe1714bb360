"""Message sizes in a study file: 8, 64K, or 1..4M for all powers of two from 1 to 4M."""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size
from vicinal.base.yaml import line_of

_UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))
_MOST = 1 << 40
"""Bytes: no machine has memory for larger messages."""


def read_sizes(path: Path, workload: Mapping[str, Any]) -> tuple[int, ...]:
    """The sizes of a workload, in the file's order; empty for a workload without sizes.

    Raises VicinalError, with the line, for repeated sizes and for invalid ranges.
    """
    given = workload.get("sizes", ())
    position = line_of(path, workload, "sizes") if "sizes" in workload else ""
    if isinstance(given, str):
        low, high = (parse_size(each) for each in re.split(r"\.\.", given))
        if not 0 < low <= high <= _MOST or low & (low - 1) or high & (high - 1):
            raise VicinalError(
                f"{position}: {given} is not a range of sizes",
                "write two powers of two, the smaller one first: 1..4M",
            )
        return tuple(1 << bit for bit in range(low.bit_length() - 1, high.bit_length()))
    sizes = tuple(read_size(position, each) for each in given)
    twice = [size for size in sizes if sizes.count(size) > 1]
    if twice:
        raise VicinalError(f"{position}: the size {show(twice[0])} is given twice", "give it once")
    return sizes


def read_size(position: str, given: Any) -> int:
    """Convert a written size to bytes. Errors about an invalid size begin with `position`."""
    try:
        size = parse_size(str(given))
    except VicinalError as error:
        raise VicinalError(f"{position}: {error.message}", error.remedy) from error
    if size > _MOST:
        raise VicinalError(f"{position}: {given} is more than 1024G, the largest size", "give less")
    return size


def show(size: int) -> str:
    """A size as a file contains it: 64K."""
    for unit, name in _UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def show_all(sizes: tuple[int, ...]) -> str:
    """Sizes in short form: `1..4M`, or `8, 64K`."""
    if len(sizes) > 2 and all(
        low and not low & (low - 1) and high == 2 * low for low, high in pairwise(sizes)
    ):
        return f"{show(sizes[0])}..{show(sizes[-1])}"
    return ", ".join(map(show, sizes))
