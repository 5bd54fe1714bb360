"""Signals that end a command: what it started is taken down in order before it ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import NoReturn

_SILENT_SECONDS = 0.8
"""After this a command that was interrupted says that it ends what it started."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal that ends the command; not an Exception, so that nothing takes it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)

    @property
    def status(self) -> int:
        """The command's exit status, as a shell would give it."""
        return 128 + self.number


@contextmanager
def handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Have `handler` take these signals, and afterwards whoever took them before."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Make signals that end a process raise Ended, once, so that all is taken down in order."""

    said = b""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal said
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        said = f"vicinal: {signal.Signals(number).name}: ending what was started ...\n".encode()
        signal.setitimer(signal.ITIMER_REAL, _SILENT_SECONDS)
        raise Ended(number)

    def tell(_number: int, _frame: FrameType | None) -> None:
        # By a signal, since a handler may not start a thread, and without sys.stderr, which may
        # have been written to when the first signal came.
        with suppress(OSError):
            os.write(2, said)

    # What is ignored, as by nohup, stays so.
    heard = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with handled([signal.SIGALRM], tell), handled(heard, end):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let signals that end a process wait until this block is done, such as one that puts back.

    The main thread's mask keeps them from it, and from processes that are started here. But threads
    of libraries (numpy's) may take them, and Python calls the handler in the main thread then: so
    the handlers wait, too.
    """
    came: list[int] = []
    waiting: AbstractContextManager[None] = nullcontext()
    if threading.current_thread() is threading.main_thread():
        heard = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        waiting = handled(heard, lambda number, _frame: came.append(number))
    try:
        with waiting:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        for number in dict.fromkeys(came):
            signal.raise_signal(number)
