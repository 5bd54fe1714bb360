"""Waiting for a launcher to end, with a look now and then at what may keep it from it."""

import os
import select
import subprocess
import time
from collections.abc import Callable

_LOOK_SECONDS = 1.0


def wait_for_launcher(
    launcher: subprocess.Popen[bytes],
    look: Callable[[], None],
    *,
    until: float | None = None,
    too_late: Callable[[], Exception],
) -> int:
    """Wait until the launcher ends and return its status, as a shell would give it.

    `look` is called once a second until then, and what it raises ends the wait. At `until`, by
    time.monotonic(), so does what `too_late` makes.
    """
    # A descriptor rather than polling: ranks may need every core.
    end = os.pidfd_open(launcher.pid) if launcher.poll() is None else None
    try:
        while end is not None:
            left = _LOOK_SECONDS
            if until is not None:
                left = min(left, max(0.0, until - time.monotonic()))
            if select.select([end], [], [], left)[0]:
                break
            look()
            if until is not None and time.monotonic() >= until:
                raise too_late()
    finally:
        if end is not None:
            os.close(end)
    status = launcher.wait()
    return status if status >= 0 else 128 - status
