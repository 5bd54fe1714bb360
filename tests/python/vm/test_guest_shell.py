"""The ssh connection to a guest, repeated if ssh ends by itself: with a fake ssh and no guest."""

from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest import shell as guest_shell
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.guest.shell import GuestShell

# Ends by itself the given number of times; then creates the socket that ssh would create.
FAKE = """#!/bin/sh
echo once >>{directory}/tries
if [ "$(wc -l <{directory}/tries)" -le {losses} ]; then exit 255; fi
touch {directory}/guest.ssh
exec sleep 60
"""


def connect(directory: Path, losses: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Connect in spite of `losses` losses; returns the number of attempts."""
    fake = directory / "ssh"
    fake.write_text(FAKE.format(directory=directory, losses=losses))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    monkeypatch.setattr(guest_shell, "_AGAIN_SECONDS", 0.01)
    (directory / "guest.port").touch()
    shell = GuestShell(
        "guest",
        directory,
        Keys(directory),
        alive=lambda _: True,
        failure=lambda what: VicinalError(what, "none"),
    )
    try:
        shell.connect(20.0)
    finally:
        shell.close()
    return len((directory / "tries").read_text().splitlines())


def test_a_connection_that_ends_at_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connect(tmp_path, 2, monkeypatch) == 3


def test_one_that_always_ends_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(VicinalError, match="it accepted no connection"):
        connect(tmp_path, 99, monkeypatch)
    assert len((tmp_path / "tries").read_text().splitlines()) == 3
