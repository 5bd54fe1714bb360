"""A word about what a command waits for, if that takes longer than people take for an answer."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

SECONDS = 0.8
"""After this a command says what it does, if it has said nothing."""

_Said = TypeVar("_Said")


class Word:
    """What is said about a wait, once, unless something else was said before."""

    def __init__(self, text: str) -> None:
        self.was_said = False
        self._text = text
        self._needless = False
        self._lock = threading.Lock()

    def spare(self) -> None:
        """Say nothing: something else says what is done."""
        with self._lock:
            self._needless = True

    def before(self, say: Callable[[_Said], None]) -> Callable[[_Said], None]:
        """The same as `say`, which spares the word."""

        def said(what: _Said) -> None:
            self.spare()
            say(what)

        return said

    def say(self) -> None:
        """Say it, where that is not needless."""
        with self._lock:
            if self._needless:
                return
            self.was_said = self._needless = True
        with suppress(OSError, ValueError):  # nobody reads it
            sys.stderr.write(f"vicinal: {self._text} ...\n")
            sys.stderr.flush()


@contextmanager
def told(text: str, *, quiet: bool = False) -> Iterator[Word]:
    """Say on standard error what is waited for, if the block takes longer than SECONDS.

    Not if the user asked for `quiet`.
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
