"""What several test modules share."""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launch_support import compile_for_each_mpi

# Continuous integration may start us with SIGINT ignored, as shells do for what runs in the
# background; programs would inherit that, and tests that press Ctrl-C would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

CHECKOUT = Path(__file__).resolve().parents[2]

Vicinal = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """launch_ranks.c, by the name of the MPI that it was compiled for."""
    return compile_for_each_mpi("launch_ranks.c", tmp_path_factory.mktemp("programs"))


@pytest.fixture
def region_path() -> Iterator[Path]:
    """A path on tmpfs that nobody else uses; what is there at the end is removed."""
    path = Path(f"/dev/shm/vicinal-test-{os.getpid()}-{secrets.token_hex(6)}")
    yield path
    path.unlink(missing_ok=True)


COMMAND_SECONDS = 120.0
BUILD_SECONDS = 600.0
"""`make check` builds the sanitized ones beside these tests, and a build waits for that."""


def made(kind: str) -> Path:
    """build/KIND, with all that `scripts/build KIND` makes in it."""
    subprocess.run([CHECKOUT / "scripts/build", kind], check=True, timeout=BUILD_SECONDS)
    return CHECKOUT / "build" / kind


class CommandServer:
    """A process that runs the command in forks of its own: see command_server.py."""

    def __init__(self, directory: Path) -> None:
        self._outputs = directory / "stdout", directory / "stderr"
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("command_server.py")],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(COMMAND_SECONDS) == 0

    def _answer(self, seconds: float) -> int:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"the command did not end within {seconds} s")
        return int(self._process.stdout.readline())

    def run(
        self, arguments: list[str], directory: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        for output in self._outputs:
            output.write_bytes(b"")
        request = {
            "arguments": arguments,
            "directory": str(directory),
            "environment": environment,
            "stdout": str(self._outputs[0]),
            "stderr": str(self._outputs[1]),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        child = self._answer(COMMAND_SECONDS)
        try:
            status = self._answer(COMMAND_SECONDS)
        except BaseException:
            os.killpg(child, signal.SIGKILL)
            self._answer(COMMAND_SECONDS)
            raise
        said, complained = (output.read_text() for output in self._outputs)
        return subprocess.CompletedProcess(["vicinal", *arguments], status, said, complained)


@pytest.fixture(scope="session")
def command_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    server = CommandServer(tmp_path_factory.mktemp("command"))
    yield server
    server.close()


@pytest.fixture
def vicinal(tmp_path: Path, command_server: CommandServer) -> Vicinal:
    """Runs the command in a process of its own, and returns its output and exit status."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"} | variables
        return command_server.run([str(argument) for argument in arguments], tmp_path, environment)

    return run


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a failed command; fails the test if it said more, or succeeded."""
    assert result.returncode in (1, 2), result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("vicinal: error: ")
    return lines[0]
