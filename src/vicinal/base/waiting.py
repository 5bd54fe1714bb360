"""Notices about long waits: a line on standard error if a command stays silent for too long."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

SECONDS = 0.8
"""A command that has printed nothing for this time says what it waits for."""

_Said = TypeVar("_Said")


class Word:
    """A notice about a wait, printed once, unless something else was printed before."""

    def __init__(self, text: str) -> None:
        self.was_said = False
        self._text = text
        self._needless = False
        self._lock = threading.Lock()

    def spare(self) -> None:
        """Cancel the notice, because other output says what the command does."""
        with self._lock:
            self._needless = True

    def before(self, say: Callable[[_Said], None]) -> Callable[[_Said], None]:
        """Return a function that cancels the notice and then calls `say`."""

        def said(what: _Said) -> None:
            self.spare()
            say(what)

        return said

    def say(self) -> None:
        """Print the notice, unless it was printed or cancelled before."""
        with self._lock:
            if self._needless:
                return
            self.was_said = self._needless = True
        with suppress(OSError, ValueError):  # standard error is closed
            sys.stderr.write(f"vicinal: {self._text} ...\n")
            sys.stderr.flush()


@contextmanager
def told(text: str, *, quiet: bool = False) -> Iterator[Word]:
    """Print the notice on standard error if the block takes longer than SECONDS.

    With `quiet` nothing is printed.
    """
    word = Word(text)
    if quiet:
        word.spare()
    timer = threading.Timer(SECONDS, word.say)
    timer.daemon = True
    timer.start()
    try:
        yield word
    finally:
        timer.cancel()
        word.spare()
