"""A process that stays until it is killed, without keeping a reader of its streams waiting."""

import os
import signal
from typing import NoReturn


def let_go() -> None:
    """Replace the standard streams by /dev/null; readers of the old streams see their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def stay() -> NoReturn:
    """Wait to be killed. The kernel reaps children."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()
