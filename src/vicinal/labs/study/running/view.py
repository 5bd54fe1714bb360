"""What a study shows while it runs.

Nothing is drawn while a trial runs: its ranks may need every processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True)
class Shown:
    """How far a study is."""

    now: str
    """What runs now."""
    block: int
    blocks: int | None
    """None where it is not known how many there will be."""
    trials: int
    """Done."""
    planned: int
    seconds_left: float
    """From what launches took so far."""
    failures: int = 0
    estimates: Sequence[Sequence[str]] = ()
    """Rows of cells: what is known so far."""


class View(Protocol):
    """Shows it."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End, and leave what people may want to read again."""

    def say(self, line: str) -> None:
        """A line that stays."""

    def warn(self, line: str) -> None:
        """The same, that something is not as it should be."""

    def show(self, shown: Shown) -> None:
        """A launch is about to begin."""


def duration(seconds: float) -> str:
    """For people: seconds, minutes or hours, as many as they are."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
