"""Commands say what they wait for, and what they do after Ctrl-C, while they do it."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from launch_support import GUARD_SECONDS, package_path

from vicinal import cli, command_app
from vicinal.base import waiting
from vicinal.base.waiting import Word, told


def wait_until_said(word: Word) -> None:
    deadline = time.monotonic() + GUARD_SECONDS
    while not word.was_said:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_lasts_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "SECONDS", 0.0)
    with told("looking at it") as word:
        wait_until_said(word)
        word.say()
    assert capsys.readouterr().err == "vicinal: looking at it ...\n"


def test_nothing_is_said_to_who_asked_for_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with told("looking at it", quiet=True) as word:
        word.say()
    assert not word.was_said
    assert capsys.readouterr().err == ""


def test_what_is_done_soon_or_says_more_itself_is_not_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "SECONDS", 3600.0)
    with told("looking at it") as quick:
        pass
    with told("making it") as word:
        heard: list[str] = []
        word.before(heard.append)("making a")
        word.say()
    quick.say()
    assert heard == ["making a"]
    assert capsys.readouterr().err == ""


def test_a_terminal_is_told_that_a_command_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = threading.Event()
    say, build = Word.say, command_app.build_app

    def say_and_note(word: Word) -> None:
        say(word)
        said.set()

    def load_slowly(command: str | None) -> typer.Typer:
        assert said.wait(GUARD_SECONDS)
        return build(command)

    monkeypatch.setattr(waiting, "SECONDS", 0.0)
    monkeypatch.setattr(Word, "say", say_and_note)
    monkeypatch.setattr(command_app, "build_app", load_slowly)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.run(["run", "--help"]) == 0
    assert capsys.readouterr().err == "vicinal: loading the command ...\n"


@contextmanager
def running(*command: object, **variables: str) -> Iterator[subprocess.Popen[str]]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": package_path(), **variables}
    with subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        guard = threading.Timer(GUARD_SECONDS, started.kill)
        guard.start()
        try:
            yield started
        finally:
            guard.cancel()
            started.kill()


SLOW_END = """
import os, sys
from vicinal import cli
def slow(words):
    try:
        sys.stderr.write("ready\\n"); sys.stderr.flush()
        sys.stdin.read()
    finally:
        os.read(0, 1)  # until the test has seen that something is said
cli._call = slow
sys.exit(cli.run(["x"]))
"""


def test_a_command_that_is_interrupted_says_that_it_ends() -> None:
    with running(sys.executable, "-c", SLOW_END) as command:
        assert command.stderr is not None
        assert command.stdin is not None
        assert command.stderr.readline() == "ready\n"
        command.send_signal(signal.SIGINT)
        assert command.stderr.readline() == "vicinal: SIGINT: ending what was started ...\n"
        command.stdin.close()
        assert command.wait(GUARD_SECONDS) == 130
        assert command.stderr.read() == ""


def test_a_job_says_which_hosts_it_waits_for(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 600\n")
    ssh.chmod(0o755)
    run = [sys.executable, "-m", "vicinal", "run", "-n", 2, "--mpi", "mpich", "--hosts", "a,b"]
    with running(*run, "--path", "network", "true", PATH=f"{tmp_path}:/usr/bin:/bin") as command:
        assert command.stderr is not None
        assert command.stderr.readline() == "vicinal: waiting for a, b to get ready ...\n"
        command.send_signal(signal.SIGINT)
        assert command.stderr.readline() == "vicinal: SIGINT: ending what was started ...\n"
