"""Progress of a long measurement."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINES = 20
"""Greatest number of progress lines if standard error is not a terminal."""


class Steps:
    """The steps of a measurement: one bar, and the name of the current step."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._printed = -1
        self._task = progress.add_task("starting", total=total)

    def begin(self, what: str) -> None:
        """Show the name of the step that begins now."""
        self._progress.update(self._task, description=what)
        if not self._progress.console.is_terminal:
            self._print(what)

    def _print(self, what: str) -> None:
        """Print a line for at most each twentieth of the steps, for readers of a log."""
        task = self._progress.tasks[0]
        part = int(_LINES * task.percentage / 100)
        if part > self._printed:
            self._printed = part
            self._progress.console.print(f"[{task.completed:.0f}/{task.total:.0f}] {what}")

    def say(self, line: str) -> None:
        """Print a line that stays above the bar."""
        self._progress.console.print(line)

    def skip(self, steps: int) -> None:
        """Count steps that an earlier run has done."""
        self._progress.advance(self._task, steps)

    def finish(self) -> None:
        """Count the current step as done."""
        self._progress.advance(self._task)


@contextmanager
def show_steps(total: int) -> Iterator[Steps]:
    """Show a progress bar on standard error; if that is not a terminal, print occasional lines
    instead."""
    console = Console(stderr=True, soft_wrap=True, markup=False)
    progress = Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield Steps(progress, total)
