"""Real-time priority for what is measured, on machines that others use at the same time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from vicinal.base.errors import VicinalError

PRIORITY = 50


@contextmanager
def realtime(wanted: bool) -> Iterator[None]:
    """Let what is started within run before everything else on its cores.

    Round robin rather than first in, first out: two ranks that wait for each other on one
    core would stay there for ever. The kernel leaves a twentieth of each second to all else.
    Raises VicinalError where this process may not ask for it.
    """
    if not wanted:
        yield
        return
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError as error:
        raise VicinalError(
            "this process may not use real-time priority",
            "be root, raise `ulimit -r` to 50, or leave out --realtime",
        ) from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
