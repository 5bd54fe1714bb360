"""What an agent answers to the command that started it."""

import io
import sys
import time

import pytest
from launch_support import GUARD_SECONDS

from vicinal.cluster.hosts import connection


def test_that_it_lives_is_said_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life go to the first stdout, even if the process later replaces its stdout."""
    monkeypatch.setattr(connection, "ALIVE_SECONDS", 0.2)
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", first)
    connection.Answers("mark ")
    monkeypatch.setattr(sys, "stdout", second)
    deadline = time.monotonic() + GUARD_SECONDS
    while first.getvalue().count("\n") < 2 and second.getvalue() == "":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert set(first.getvalue().splitlines()) == {'mark {"alive": true}'}
    assert second.getvalue() == ""
    first.close()  # ends the thread that writes
