"""The program that runs a task of the host's in a guest, and the frames between both.

In a guest, this program is an ordinary program. Here it runs on the host.
"""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from vicinal.integrations.slurm import guest_stream
from vicinal.integrations.slurm.guest_stream import Kind
from vicinal.integrations.slurm.guest_task import GUESTS, TASKS
from vicinal.mpi.environment import GUEST_TASK_FILE, provider_directory

PATIENCE = 60.0


class Runner:
    """The guest's program, and the host's end of the stream."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [str(provider_directory() / GUEST_TASK_FILE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to, self.come = self.process.stdin, self.process.stdout

    def start(self, *command: str, directory: str = "/", **variables: str) -> None:
        settings = {"PATH": os.environ["PATH"], **variables}
        guest_stream.write_start(self.to.fileno(), command, settings, directory)

    def say(self, kind: Kind, content: bytes = b"") -> None:
        guest_stream.write(self.to.fileno(), kind, content)

    def hear(self) -> tuple[Kind, bytes] | None:
        return guest_stream.read(self.come.fileno())

    def hear_until(self, *last: Kind) -> dict[Kind, bytes]:
        """Receive frames until one of these kinds arrives. Returns the joined contents by kind."""
        found: dict[Kind, bytes] = {}
        while frame := self.hear():
            found[frame[0]] = found.get(frame[0], b"") + frame[1]
            if frame[0] in last:
                break
        return found


@pytest.fixture
def runner() -> Iterator[Runner]:
    found = Runner()
    yield found
    with suppress(OSError):
        found.to.close()
    found.process.wait(PATIENCE)
    found.come.close()


def test_a_program_has_its_arguments_variables_and_directory(runner: Runner) -> None:
    runner.start("sh", "-c", 'echo "$1$OWN$PWD"; echo bad >&2; exit 7', "", "a b", OWN="\xe4c")
    said = runner.hear_until(Kind.EXITED)
    assert said == {
        Kind.OUTPUT: "a b\xe4c/\n".encode(),
        Kind.ERRORS: b"bad\n",
        Kind.EXITED: b"\x07",
    }


def test_a_program_can_have_the_numbers_of_the_job_s_user(runner: Runner) -> None:
    runner.start("sh", "-c", "id -u; id -g", VICINAL_GUEST_USER="4711:4712")
    said = runner.hear_until(Kind.EXITED, Kind.FAILED)
    assert said == {Kind.OUTPUT: b"4711\n4712\n", Kind.EXITED: b"\0"}


def test_programs_with_the_same_numbers_can_read_each_other(runner: Runner) -> None:
    """They are in one user namespace. Programs with other numbers are in another."""
    found = []
    script = "readlink /proc/self/ns/user; exec sleep 600"
    runners = [runner, Runner(), Runner()]
    for each, number in zip(runners, (4711, 4711, 4712), strict=True):
        each.start("sh", "-c", script, VICINAL_GUEST_USER=f"{number}:4711")
        found.append(each.hear())
    for each in runners:
        each.say(Kind.SIGNAL, bytes([signal.SIGTERM]))
        assert each.hear_until(Kind.KILLED) == {Kind.KILLED: bytes([signal.SIGTERM])}
    for each in runners[1:]:
        each.to.close()
        each.process.wait(PATIENCE)
        each.come.close()
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0] != (Kind.OUTPUT, (str(Path("/proc/self/ns/user").readlink()) + "\n").encode())


def test_numbers_that_are_none_are_refused(runner: Runner) -> None:
    runner.start("true", VICINAL_GUEST_USER="4711:daemon")
    assert runner.hear() == (Kind.FAILED, b"true: Invalid argument")


def test_a_directory_that_is_not_there_is_home(runner: Runner) -> None:
    runner.start("pwd", directory="/nowhere", HOME="/")
    expected = os.path.realpath(os.environ["HOME"]).encode()  # the home directory of the runner
    assert runner.hear_until(Kind.EXITED)[Kind.OUTPUT].strip() == expected


def test_input_is_taken_as_the_program_reads_it(runner: Runner) -> None:
    """The next input is not sent before the program reads. Signals overtake unread input."""
    program = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "print('waits', flush=True)\n"
        "signal.sigwait([signal.SIGUSR1])\n"
        "sys.stdout.buffer.write(sys.stdin.buffer.read())"
    )
    runner.start(sys.executable, "-c", program)
    content = os.urandom(1 << 19)
    runner.say(Kind.INPUT, content)
    assert runner.hear() == (Kind.OUTPUT, b"waits\n")
    runner.say(Kind.SIGNAL, bytes([signal.SIGUSR1]))
    assert runner.hear_until(Kind.TAKEN) == {Kind.TAKEN: Kind.INPUT.value}
    runner.say(Kind.INPUT)
    said = runner.hear_until(Kind.EXITED)
    assert said[Kind.OUTPUT] == content
    assert said[Kind.EXITED] == b"\0"


def test_pmi_goes_both_ways(runner: Runner) -> None:
    script = 'read -r line <&"$PMI_FD"; echo "heard $line" >&"$PMI_FD"'
    runner.start("sh", "-c", script, PMI_FD="3")
    runner.say(Kind.PMI, b"word\n")
    said = runner.hear_until(Kind.EXITED)
    assert said == {
        Kind.TAKEN: Kind.PMI.value,
        Kind.PMI: b"heard word\n",
        Kind.EXITED: b"\0",
    }


def test_without_pmi_there_is_no_more_than_streams(runner: Runner) -> None:
    runner.start("sh", "-c", "ls /proc/self/fd | wc -l")
    assert runner.hear_until(Kind.EXITED)[Kind.OUTPUT].strip() == b"4"  # and the directory of ls


def test_the_end_by_a_signal_is_told_from_a_status(runner: Runner) -> None:
    runner.start("sh", "-c", "kill -TERM $$")
    assert runner.hear_until(Kind.KILLED) == {Kind.KILLED: bytes([signal.SIGTERM])}


def test_what_is_no_program_is_said(runner: Runner) -> None:
    runner.start("/nowhere/program")
    said = runner.hear_until(Kind.FAILED)
    assert said == {Kind.FAILED: b"/nowhere/program: No such file or directory"}
    assert runner.process.wait(PATIENCE) == 0


def wait_until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def started_sleeps(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline() == ["sleep", mark]:
                found.append(process)
    return found


@pytest.mark.parametrize("how", ["closed", "killed child", "nonsense", "too long"])
def test_nothing_runs_on_when_nobody_is_there(runner: Runner, how: str) -> None:
    mark = str(100_000 + os.getpid())
    runner.start("sh", "-c", f"sleep {mark} & echo up; wait")
    assert runner.hear() == (Kind.OUTPUT, b"up\n")
    wait_until(lambda: bool(started_sleeps(mark)))
    if how == "closed":
        runner.to.close()
    elif how == "killed child":
        psutil.Process(runner.process.pid).children()[0].kill()
    else:
        runner.to.write(b"Z\0\0\0\0" if how == "nonsense" else b"I\x7f\0\0\0")
    runner.process.wait(PATIENCE)
    wait_until(lambda: not started_sleeps(mark))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"O\0\0",
        b"O\0\0\0\x05abc",
        b"Z\0\0\0\0",
        b"O\x7f\0\0\0",
        b"X\0\0\0\0",
        b"K\0\0\0\x02ab",
    ],
)
def test_what_a_guest_must_not_say_is_the_end(tmp_path: Path, said: bytes) -> None:
    file = tmp_path / "said"
    file.write_bytes(said)
    with file.open("rb") as opened:
        assert guest_stream.read(opened.fileno()) is None


@pytest.mark.parametrize("more", [0, 1])
def test_a_guest_s_frame_is_not_read_if_it_is_too_long(tmp_path: Path, more: int) -> None:
    content = bytes((1 << 20) + more)
    head = b"O" + struct.pack(">I", len(content))
    file = tmp_path / "said"
    file.write_bytes(head + content)
    with file.open("rb") as opened:
        frame = guest_stream.read(opened.fileno())
        taken = os.lseek(opened.fileno(), 0, os.SEEK_CUR)
    if more:
        assert (frame, taken) == (None, len(head))
    else:
        assert frame == (Kind.OUTPUT, content)


# This stand-in closes its input, and reports the status of a program that did not wait for its
# input.
SSH = r"""#!/bin/sh
exec <&-
touch {directory}/closed
sleep 0.3
printf 'R\000\000\000\004bad\nX\000\000\000\001\007'
"""


def test_how_a_program_ended_is_heard_though_it_hears_nothing_any_more(tmp_path: Path) -> None:
    guests = tmp_path / GUESTS
    guests.mkdir()
    (guests / TASKS).write_text('{"environment": {}, "holds": []}')
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(directory=tmp_path))
    ssh.chmod(0o755)
    task = (str(os.getpid()), str(tmp_path), "node", "0", "--", "sh")
    running = subprocess.Popen(
        [sys.executable, "-m", "vicinal.integrations.slurm.guest_task", *task],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until((tmp_path / "closed").exists)
    _, errors = running.communicate(b"given\n", PATIENCE)
    assert (running.returncode, errors) == (7, b"bad\n")


def test_a_frame_has_its_length_before_it(tmp_path: Path) -> None:
    file = tmp_path / "said"
    with file.open("wb") as opened:
        guest_stream.write(opened.fileno(), Kind.OUTPUT, b"abc")
        with pytest.raises(guest_stream.TooLongError):
            guest_stream.write(opened.fileno(), Kind.OUTPUT, b"a" * ((1 << 20) + 1))
    assert file.read_bytes() == b"O" + struct.pack(">I", 3) + b"abc"
