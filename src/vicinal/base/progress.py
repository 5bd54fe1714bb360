"""Showing how far a long measurement is."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINES = 20
"""How many lines of progress there are, at most, where stderr is no terminal."""


class Steps:
    """The steps of a measurement: one bar, and what is being done right now."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._printed = -1
        self._task = progress.add_task("starting", total=total)

    def begin(self, what: str) -> None:
        """Say what is done now."""
        self._progress.update(self._task, description=what)
        if not self._progress.console.is_terminal:
            self._print(what)

    def _print(self, what: str) -> None:
        """A line now and then, for those who read a log."""
        task = self._progress.tasks[0]
        part = int(_LINES * task.percentage / 100)
        if part > self._printed:
            self._printed = part
            self._progress.console.print(f"[{task.completed:.0f}/{task.total:.0f}] {what}")

    def say(self, line: str) -> None:
        """A line that stays."""
        self._progress.console.print(line)

    def skip(self, steps: int) -> None:
        """Count steps as done that were done before."""
        self._progress.advance(self._task, steps)

    def finish(self) -> None:
        """Count the step that was begun as done."""
        self._progress.advance(self._task)


@contextmanager
def show_steps(total: int) -> Iterator[Steps]:
    """A progress bar on stderr; where that is no terminal, a line now and then."""
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
