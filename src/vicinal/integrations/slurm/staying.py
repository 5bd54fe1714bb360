"""A process that stays until it is killed, and keeps nobody waiting meanwhile."""

import os
import signal
from typing import NoReturn


def let_go() -> None:
    """Give up the standard streams: whoever reads from them sees their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def stay() -> NoReturn:
    """Wait to be killed. Children are reaped by the kernel."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()
