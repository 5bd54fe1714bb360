"""What several test modules share."""

import time
from collections.abc import Callable

BOUND = 120.0  # seconds; a hang guard


def wait_until(what: str, condition: Callable[[], bool], seconds: float = BOUND) -> None:
    """Fail the test if `condition` does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in {seconds} s it did not come to this: {what}"
        time.sleep(0.1)
