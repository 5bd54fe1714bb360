"""The provider's thresholds and their bounds.

provider/proto/thresholds.c has the same table, and a test compares the two.
"""

import re
from dataclasses import dataclass

_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}


@dataclass(frozen=True)
class Threshold:
    """The value at which the provider changes from one method to another."""

    key: str
    """The name in a profile."""
    usual: int
    least: int
    most: int
    unit: str
    reaches: str

    @property
    def variable(self) -> str:
        """The variable that sets the threshold for a job."""
        return f"VICINAL_{self.key.upper()}"

    def fault(self, text: str) -> str | None:
        """Return the fault of a value as a phrase; None if the value is valid."""
        value = number(text)
        good = value is not None and self.least <= value <= self.most
        return None if good else f"is not a number from {self.least} to {self.most}"


THRESHOLDS = (
    Threshold("short_bytes", 440, 48, 440, "B", "region: messages in slots of the ring"),
    Threshold("eager_bytes", 4096, 4096, 65_536, "B", "region: messages in one chunk"),
    Threshold("piece_bytes", 65_536, 4096, 65_536, "B", "pieces of large messages"),
    Threshold("pieces_in_flight", 8, 1, 64, "pieces", "region: pieces above 16 KiB"),
    Threshold("single_copy_bytes", 65_536, 16_384, 1 << 30, "B", "region: one copy above it"),
    Threshold("polls_per_read", 64, 1, 1024, "polls", "ranks that begin to wait"),
    Threshold("reads_before_yield", 2000, 1, 1 << 24, "reads", "ranks that wait: core offered"),
    Threshold("reads_before_sleep", 20_000, 1, 1 << 30, "reads", "ranks that wait: sleep"),
)


def number(text: str) -> int | None:
    """Parse a number with or without K, M or G, as the provider does; None if the text is not a
    number."""
    found = re.fullmatch(r"([0-9]{1,18})([KMG]?)", text, re.IGNORECASE | re.ASCII)
    return None if found is None else int(found[1]) << _SHIFTS[found[2].upper()]
