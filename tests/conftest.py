"""What all tests share: signals, drawn examples, access for other users, reasons for skips."""

import os
import signal
from collections import Counter

import pytest
from checks.leftovers import remove_leftovers
from hypothesis import HealthCheck, settings
from reachable import open_to_other_users

# Continuous integration may start pytest with SIGINT ignored, as shells do for background jobs.
# Programs would inherit that, and tests that press Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Python writes a line and its end in one piece only if it buffers output. In two pieces, the lines
# of two ranks can mingle.
os.environ.pop("PYTHONUNBUFFERED", None)

# Property tests draw the same examples each time, so that a change fails only by its own fault and
# not by chance. `pytest --hypothesis-profile=explore` draws other and more examples, and says how
# to repeat them. There is no health check for slow examples, because any busy machine draws slowly.
settings.register_profile(
    "check", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("check")

# Tests that act as another user need a checkout that this user can reach.
open_to_other_users()


def pytest_configure(config: pytest.Config) -> None:
    """Remove the regions of earlier tests that were killed."""
    if not hasattr(config, "workerinput"):  # not in each process of pytest-xdist
        remove_leftovers()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for each reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in skipped if report.longrepr
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
