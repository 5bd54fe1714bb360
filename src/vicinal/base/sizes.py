"""Sizes as people write and read them; K, M and G are powers of 1024."""

import re

from vicinal.base.errors import VicinalError

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"(\d{1,15})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes from '983040', '960K', '960KiB' or '1G'. Raises VicinalError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise VicinalError(f"{text!r} is not a size", "write it as bytes or like 960K, 4M or 1G")
    return int(match[1]) * _UNITS[match[2].upper()]


def show_size(count: int) -> str:
    """Bytes in the largest unit that leaves at least one whole: '960.0 KiB'."""
    for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"
