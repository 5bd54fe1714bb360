"""Directories that one process at a time works in."""

import threading
from pathlib import Path

import pytest

from vicinal.base import directories
from vicinal.base.directories import locked
from vicinal.base.errors import VicinalError


def test_who_comes_second_waits_for_the_first(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with locked(tmp_path):
            order.append("second")

    waiting = threading.Thread(target=second)
    with locked(tmp_path):
        waiting.start()
        waiting.join(0.5)
        assert order == []
        order.append("first")
    waiting.join(30)
    assert order == ["first", "second"]


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "_LOCK_SECONDS", 0.2)
    with (
        locked(tmp_path),
        pytest.raises(VicinalError, match="another command has been at work"),
        locked(tmp_path),
    ):
        pass
