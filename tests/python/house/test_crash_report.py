"""A fault in Vicinal itself: the user gets one line and a file to send, and never a traceback."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_support import CHECKOUT

import vicinal
from vicinal import cli
from vicinal.base.crash_report import without_secrets
from vicinal.cluster import host_part_agent
from vicinal.launch import host_agent


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def fails(error: BaseException) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise error

    return call


def crash(error: BaseException, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(cli, "_call", fails(error))
    return cli.run(words)


def test_a_fault_is_one_line_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--token", "abc123", "-n", "2", "PASSWORD=abc123", "tcp://me:abc123@there/"]
    assert crash(ZeroDivisionError("division by zero"), words, monkeypatch) == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    (file,) = tmp_path.glob("vicinal/crashes/crash-*.txt")
    assert line.startswith(
        "vicinal: error: Vicinal has a bug (ZeroDivisionError: division by zero in vicinal/cli.py:"
    )
    assert line.endswith(f": report the bug, and attach the file {file}, which has the details")
    assert said.out == ""
    text = file.read_text()
    assert f"vicinal: {vicinal.__version__}\n" in text
    assert "Traceback (most recent call last)" in text
    assert "'run', '--token', '***', '-n', '2', 'PASSWORD=***', 'tcp://me:***@there/'" in text
    assert "abc123" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_ends_that_are_no_faults_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        crash(KeyboardInterrupt(), [], monkeypatch)
    with pytest.raises(SystemExit):
        crash(SystemExit(3), [], monkeypatch)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_went_away_is_no_fault(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vicinal", "study", "list"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 1
    assert list(tmp_path.glob("vicinal/crashes/*")) == []


def test_where_nothing_can_be_written_the_line_says_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.mkstemp", fails(OSError(28, "No space left on device")))
    assert crash(KeyError("name"), [], monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "(KeyError: 'name' in vicinal/cli.py:" in line
    assert "could not be written (no space left on device): report this line" in line


def test_only_the_newest_reports_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "vicinal/crashes"
    directory.mkdir(parents=True)
    for number in range(60):
        (directory / f"crash-2020-01-01-0000{number:02}-x.txt").touch()
    crash(KeyError("name"), [], monkeypatch)
    left = sorted(each.name for each in directory.iterdir())
    assert len(left) == 50
    assert left[0] == "crash-2020-01-01-000011-x.txt"
    assert not left[-1].startswith("crash-2020")


def test_agents_of_other_hosts_name_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "far")
    monkeypatch.setattr(
        host_part_agent.Agent, "serve", fails(IndexError("list index out of range"))
    )
    monkeypatch.setattr(host_agent, "_serve", fails(IndexError("list index out of range")))
    for main in (host_part_agent.main, host_agent.main):
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert ".txt on far, which has the details" in line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--user me --nodes 3", "--user me --nodes 3"),
        ("MY_API_KEY=x", "MY_API_KEY=***"),
        ("https://host/path", "https://host/path"),
        ("https://me:x@host/path", "https://me:***@host/path"),
    ],
)
def test_what_is_taken_for_a_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
