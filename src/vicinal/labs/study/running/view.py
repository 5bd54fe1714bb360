"""What a study shows while it runs.

Nothing is drawn while a trial runs, because its ranks may need every processor.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vicinal.labs.study.file.model import Study

_LINE_SECONDS = 10.0
"""Time between lines in a log, at least."""
_BAR_WIDTH = 32


@dataclass(frozen=True)
class Shown:
    """The progress of a study."""

    now: str
    """The current launch."""
    block: int
    blocks: int | None
    """Number of blocks; None if unknown."""
    trials: int
    """Trials that are done."""
    planned: int
    seconds_left: float
    """Estimate from the times of earlier launches."""
    failures: int = 0
    estimates: Sequence[Sequence[str]] = ()
    """Rows of cells with the values measured so far."""


class View(Protocol):
    """A display of a running study, for a terminal or a log."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None:
        """End the display, and leave lines that people may want to read again."""

    def say(self, line: str) -> None:
        """Print a line that stays on the display."""

    def warn(self, line: str) -> None:
        """Print a line about a problem; it stays on the display."""

    def show(self, shown: Shown) -> None:
        """Show the progress before a launch begins."""


def duration(seconds: float) -> str:
    """A duration for people, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def view_for(study: Study, console: Console, *, quiet: bool) -> View:
    """The view that fits the console."""
    if quiet:
        return Lines(console, quiet=True)
    return LiveView(study, console) if console.is_terminal else Lines(console)


class LiveView:
    """A table that is redrawn before each launch, below lines that stay."""

    def __init__(self, study: Study, console: Console) -> None:
        self._study = study
        self._console = console
        # No thread draws, because the ranks of a running trial may need every processor.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def warn(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, style="yellow")

    def show(self, shown: Shown) -> None:
        self._live.update(self._drawn(shown), refresh=True)

    def _drawn(self, shown: Shown) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            ProgressBar(total=max(1, shown.planned), completed=shown.trials, width=_BAR_WIDTH),
            Text(_progress(shown)),
        )
        parts: list[RenderableType] = [Text(self._study.title, style="bold"), head]
        parts.append(Text(f"now: {shown.now}"))
        if shown.estimates:
            parts.append(_table(shown))
        return Group(*parts)


class Lines:
    """A log line from time to time; with `quiet`, only warnings."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._last = (0, float("-inf"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        if not self._quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def show(self, shown: Shown) -> None:
        """Print a line for each block, and further lines for a long block."""
        block, before = self._last
        now = time.monotonic()
        if self._quiet or (shown.block == block and now - before < _LINE_SECONDS):
            return
        self._last = (shown.block, now)
        self.say(f"{_progress(shown)}; now {shown.now}")


def _progress(shown: Shown) -> str:
    of_all = "" if shown.blocks is None else f" of {shown.blocks}"
    words = f"block {shown.block}{of_all}, {shown.trials} of {shown.planned} trials"
    if shown.failures:
        words += f", {shown.failures} failed"
    return f"{words}, about {duration(shown.seconds_left)} left"


def _table(shown: Shown) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    heading, *rows = shown.estimates
    for number, title in enumerate(heading):
        table.add_column(title, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
