"""The doorbells' server of a cluster: it outlives commands, is found again, and ends on request."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT
from test_doorbell_server import Client, ring, rung

from vicinal.base.daemon import claim, claimant
from vicinal.base.errors import VicinalError
from vicinal.cluster.plan.resource import Condition, Json
from vicinal.cluster.resources.doorbell import DoorbellResource
from vicinal.cluster.vm.qemu.doorbell import VECTORS
from vicinal.cluster.vm.qemu.doorbell.running import LastingServer

BOUND = 120.0  # seconds; a guard against hangs
START = (
    "import sys; from pathlib import Path\n"
    "from vicinal.cluster.vm.qemu.doorbell.running import LastingServer\n"
    "here = Path(sys.argv[1])\n"
    "LastingServer(here / 'doorbell').start(here / 'region', clients=2, vectors=3)\n"
)
WAIT = "print('started', flush=True)\nimport time; time.sleep(600)\n"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory with a region; at the end, no server runs there."""
    (tmp_path / "region").write_bytes(bytes(4096))
    yield tmp_path
    LastingServer(tmp_path / "doorbell").end()


def resource(directory: Path) -> DoorbellResource:
    """A resource made only from its settings, as a later command finds it."""
    settings: dict[str, Json] = {
        "directory": str(directory / "doorbell"),
        "region": str(directory / "region"),
        "vms": 2,
    }
    found = DoorbellResource.from_settings(settings)
    assert found.settings == settings
    return found


def command(directory: Path, code: str) -> list[str]:
    return [sys.executable, "-c", code, str(directory)]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(CHECKOUT / "src")}


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_made_stopped_started_and_taken_away(directory: Path) -> None:
    assert resource(directory).observe().condition is Condition.ABSENT
    resource(directory).create()
    assert resource(directory).observe().condition is Condition.READY
    server = LastingServer(directory / "doorbell")
    assert server.socket.stat().st_mode & 0o777 == 0o600
    client = Client(server.socket)
    client.until(lambda: len(client.peers.get(client.number, [])) == VECTORS)

    resource(directory).stop()
    resource(directory).stop()  # again: nothing to do
    assert resource(directory).observe().condition is Condition.STOPPED
    with pytest.raises(EOFError):
        client.take()
    # The client keeps the interrupts that it already has.
    ring(client.peers[client.number][1])
    assert rung(client.peers[client.number][1]) == 1
    client.close()

    resource(directory).start()
    assert resource(directory).observe().condition is Condition.READY
    process = server.process
    assert process is not None
    resource(directory).remove()
    until(lambda: not psutil.pid_exists(process))  # init has to reap it
    assert not server.directory.exists()
    assert resource(directory).observe().condition is Condition.ABSENT
    resource(directory).remove()  # again: nothing to do


def test_one_that_was_killed_is_stopped_and_starts_again(directory: Path) -> None:
    resource(directory).create()
    process = LastingServer(directory / "doorbell").process
    assert process is not None
    os.kill(process, signal.SIGKILL)
    until(lambda: resource(directory).observe().condition is Condition.STOPPED)
    resource(directory).start()
    again = LastingServer(directory / "doorbell").process
    assert again not in (None, process)


def test_one_of_a_region_that_is_gone_is_broken(directory: Path) -> None:
    resource(directory).create()
    (directory / "region").unlink()
    (directory / "region").write_bytes(bytes(4096))  # another region with the same name
    observed = resource(directory).observe()
    assert observed.condition is Condition.BROKEN
    assert "a region that no longer exists" in observed.why


def test_it_outlasts_a_command_that_is_killed_and_is_found(directory: Path) -> None:
    with subprocess.Popen(
        command(directory, START + WAIT), env=ENVIRONMENT, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        starter.kill()
    time.sleep(0.3)
    server = LastingServer(directory / "doorbell")
    assert server.serves(directory / "region")
    assert server.process != starter.pid
    resource(directory).remove()
    assert server.process is None


def test_ctrl_c_and_the_end_of_a_terminal_are_not_for_it(directory: Path) -> None:
    starter, terminal = pty.fork()
    if starter == 0:
        os.execve(sys.executable, command(directory, START + WAIT), ENVIRONMENT)
    try:
        said = b""
        while b"started" not in said:
            said += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        _, status = os.waitpid(starter, 0)
        assert status != 0, "Ctrl-C did not end the command"
    finally:
        os.close(terminal)
    time.sleep(0.3)
    assert resource(directory).observe().condition is Condition.READY


def test_one_for_whom_nobody_waits_any_more_does_not_stay(directory: Path) -> None:
    """The command was killed while it started the server."""
    with subprocess.Popen(
        command(directory, START), env=ENVIRONMENT, stdout=subprocess.DEVNULL
    ) as starter:
        until(lambda: (directory / "doorbell/log").exists())
        starter.kill()
    marks = (str(directory / "doorbell"), "vicinal.cluster.vm.qemu.doorbell")

    def there() -> bool:
        commands = (each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"]))
        return any(all(mark in " ".join(words) for mark in marks) for words in commands)

    def known() -> bool:
        return LastingServer(directory / "doorbell").process is not None

    # The server noticed the kill, or was ready before and is known to later commands.
    until(lambda: known() or not there())


def test_one_that_comes_too_late_does_not_serve(tmp_path: Path) -> None:
    """Another process has claimed the file by then, or the file was removed."""
    file = tmp_path / "claim"
    script = (
        "import os, sys; from pathlib import Path\n"
        "from vicinal.base.daemon import claim\n"
        "print(claim(int(sys.argv[1]), Path(sys.argv[2])), flush=True); sys.stdin.read()\n"
    )
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)

    def started() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", script, str(descriptor), str(file)],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            text=True,
        )

    def heard(process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    try:
        assert claimant(file) is None
        with started() as first:
            assert heard(first) == "True"
            assert claimant(file) == first.pid
            with started() as second:
                assert heard(second) == "False"
                assert claimant(file) == first.pid
        assert claimant(file) is None
        file.unlink()
        assert claimant(file) is None
        assert not claim(descriptor, file)
    finally:
        os.close(descriptor)


def test_one_of_another_pid_namespace_is_seen_and_left_alone(directory: Path) -> None:
    resource(directory).create()
    code = (
        "import sys; from pathlib import Path\n"
        "from vicinal.cluster.vm.qemu.doorbell.running import LastingServer\n"
        "server = LastingServer(Path(sys.argv[1]) / 'doorbell')\n"
        "assert server.process == 0, server.process\n"
        "server.end()\n"
    )
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*apart, *command(directory, code)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert "is in another PID namespace" in done.stderr
    assert resource(directory).observe().condition is Condition.READY


def test_one_that_does_not_start_says_why(directory: Path) -> None:
    server = LastingServer(directory / "doorbell")
    with pytest.raises(VicinalError, match=r"did not start \(.*open files"):
        server.start(directory / "region", clients=60000, vectors=60000)
    with pytest.raises(VicinalError, match=r"did not start \(no such file"):
        server.start(directory / "nothing", clients=1, vectors=1)
    assert server.process is None
