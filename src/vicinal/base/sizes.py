"""Sizes in the notation of users; K, M and G are powers of 1024."""

import re

from vicinal.base.errors import VicinalError

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4

_NAMED = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}
_SIZE = re.compile(r"(\d{1,15})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Parse a size such as '983040', '960K', '960KiB' or '1G', and return bytes.

    Raises VicinalError for any other text.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise VicinalError(f"{text!r} is not a size", "write it as bytes or like 960K, 4M or 1G")
    return int(match[1]) * _UNITS[match[2].upper()]


def show_size(count: int) -> str:
    """Bytes in the largest unit up to GiB that gives at least 1, with one decimal: '960.0 KiB'."""
    for unit, name in _NAMED[1:]:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def show_short_size(count: int) -> str:
    """Bytes in the largest unit up to TiB that gives at least 1; whole numbers without a decimal:
    '2 GiB', '1.5 TiB'."""
    for unit, name in _NAMED:
        if count >= unit:
            digits = 0 if count % unit == 0 else 1
            return f"{count / unit:.{digits}f} {name}"
    return f"{count} B"


def show_exact_size(count: int) -> str:
    """Bytes in the largest unit up to MiB that gives a whole number: '64 KiB', '1000 B'."""
    for unit, name in _NAMED[2:]:
        if count and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"
