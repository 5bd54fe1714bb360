"""The agent of a job on one of its hosts leaves nothing behind, however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from launch_support import GUARD_SECONDS

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.launch import host_files
from vicinal.launch.host_agent import MARK, HostRequest
from vicinal.launch.host_files import HostFiles, new_mark, take_away_left_behind


@pytest.fixture
def made() -> Iterator[HostFiles]:
    found = HostFiles.of_job(new_mark())
    yield found
    found.remove()


@contextmanager
def agent(job: HostFiles) -> Iterator[subprocess.Popen[str]]:
    """An agent that has made a job's region and a file next to it."""
    request = HostRequest(
        version=vicinal.__version__,
        needed=[],
        directory="/",
        mark=job.directory.name.removeprefix("vicinal-job-"),
        region=True,
        members=2,
        section_bytes=256 << 10,
        heap_bytes=0,
        label="test",
        files={"input": "text"},
    )
    command = [sys.executable, "-m", "vicinal.launch.host_agent"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            running.stdin.write(json.dumps(request.to_dict()) + "\n")
            running.stdin.flush()
            answer = running.stdout.readline()
            assert "host" in json.loads(answer.removeprefix(MARK)), answer
            assert job.region.exists()
            assert (job.files / "input").read_text() == "text"
            yield running
        finally:
            running.kill()


@contextmanager
def rank(job: HostFiles) -> Iterator[subprocess.Popen[bytes]]:
    """A rank of the job that does not end by itself."""
    environment = os.environ | {"VICINAL_REGION": f"file:{job.region}"}
    with subprocess.Popen(["sleep", "600"], env=environment) as running:
        yield running
        running.kill()


def gone(path: Path) -> bool:
    deadline = time.monotonic() + GUARD_SECONDS
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not path.exists()


def test_the_end_of_the_input_is_the_end_of_the_job(made: HostFiles) -> None:
    with agent(made) as running, rank(made) as left:
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait(GUARD_SECONDS) == 0
        assert left.wait(GUARD_SECONDS) == -signal.SIGKILL
        assert not made.directory.exists()


def test_more_signals_while_it_cleans_up(made: HostFiles) -> None:
    """Launchers send several signals, and the ranks have some seconds to end by themselves."""
    with agent(made) as running, rank(made) as left:
        running.send_signal(signal.SIGTERM)
        assert gone(made.directory)
        assert left.poll() is None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            running.send_signal(number)
        assert running.wait(GUARD_SECONDS) == 128 + signal.SIGTERM
        assert left.wait(GUARD_SECONDS) == -signal.SIGKILL


def test_what_a_killed_agent_leaves_the_next_one_takes_away(made: HostFiles) -> None:
    others = [HostFiles.of_job(new_mark()) for _ in range(2)]
    with ExitStack() as opened:
        for other in others:
            opened.callback(other.remove)
        killed = opened.enter_context(agent(made))
        opened.enter_context(agent(others[0]))
        killed.kill()
        killed.wait()
        assert made.region.exists()
        opened.enter_context(agent(others[1]))
        assert not made.directory.exists()
        assert all(other.region.exists() for other in others)


def test_two_agents_of_one_job_on_one_host(made: HostFiles) -> None:
    """This happens if a hostfile has two names of one host. The files stay while one agent runs."""
    with agent(made) as first, agent(made):
        first.kill()
        first.wait()
        take_away_left_behind()
        assert made.region.exists()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory instead of /dev/shm."""
    monkeypatch.setattr(host_files, "_DIRECTORY", tmp_path)
    return tmp_path


def test_names_that_are_no_directories_of_ours_are_left_alone(shared: Path) -> None:
    prefix = f"vicinal-job-{os.getuid()}-"
    target = shared / "target"
    target.mkdir()
    (target / "region").touch()
    (shared / f"{prefix}link").symlink_to(target)
    (shared / f"{prefix}file").touch()
    before = sorted(shared.rglob("*"))
    take_away_left_behind()
    assert sorted(shared.rglob("*")) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_neither_used_nor_taken_away(shared: Path) -> None:
    foreign = HostFiles.of_job("mark")
    assert foreign.directory.parent == shared
    foreign.directory.mkdir()
    os.chown(foreign.directory, 1, 1)
    take_away_left_behind()
    assert foreign.directory.exists()
    with pytest.raises(VicinalError, match="belongs to another user"):
        foreign.make()
