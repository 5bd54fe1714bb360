"""Signals that end a command after the command has ended the processes that it started."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import NoReturn

SILENT_SECONDS = 0.8
"""After this time an interrupted command says that it still ends what it started."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal ends the command. Not an Exception, so that no handler of errors catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)

    @property
    def status(self) -> int:
        """The command's exit status in a shell's convention: 128 and the signal's number."""
        return 128 + self.number


@contextmanager
def handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Install `handler` for signals, and restore the former handlers at the end of the block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Make each ending signal raise Ended, once, so that the command can clean up in order."""

    said = b""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal said
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        said = f"vicinal: {signal.Signals(number).name}: ending what was started ...\n".encode()
        signal.setitimer(signal.ITIMER_REAL, SILENT_SECONDS)
        raise Ended(number)

    def tell(_number: int, _frame: FrameType | None) -> None:
        # A timer's signal prints the line, because a handler may not start a thread. os.write
        # bypasses sys.stderr, which the first signal may have interrupted during a write.
        with suppress(OSError):
            os.write(2, said)

    # Signals that are ignored, for instance by nohup, stay ignored.
    heard = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with handled([signal.SIGALRM], tell), handled(heard, end):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Delay ending signals until the block is done, such as a block that restores settings.

    The mask of the main thread holds the signals back from the thread and from processes that it
    starts. But threads of libraries (numpy) may receive a signal, and Python then calls the handler
    in the main thread. So the handlers are delayed, too.
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
