"""A process that stays until it is killed, without keeping a reader of its streams waiting."""

import os
import signal
from contextlib import suppress
from typing import NoReturn


def let_go() -> None:
    """Replace the standard streams by /dev/null; readers of the old streams see their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def stay() -> NoReturn:
    """Wait to be killed. The kernel reaps children that end from now on.

    A child that ended before would stay as a zombie: the parent of a cluster's head, for example,
    becomes a child of the supervisor, which is the first process of its PID namespace.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with suppress(ChildProcessError):  # no child is left
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    while True:
        signal.pause()
