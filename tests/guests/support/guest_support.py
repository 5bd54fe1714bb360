"""Functions and time limits that several test modules share."""

import time
from collections.abc import Callable

# They prevent hanging: more than ten times what two idle cores need with TCG.
BOUND = 600.0
"""Seconds for one operation in guests: a job, a start, a move."""
GUARD_SECONDS = 1500.0
"""Seconds for a program that runs a whole test."""
TEST_SECONDS = 1800.0
"""Seconds for a test with the fixtures that it is the first to need."""


def wait_until(what: str, condition: Callable[[], bool], seconds: float = BOUND) -> None:
    """Fail the test if `condition` does not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in {seconds} s it did not come to this: {what}"
        time.sleep(0.1)
