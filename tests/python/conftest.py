"""What several test modules share."""

import os
import secrets
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


@pytest.fixture
def vicinal(tmp_path: Path) -> Vicinal:
    """Runs the command in a process of its own, and returns its output and exit status."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vicinal", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"} | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a failed command; fails the test if it said more, or succeeded."""
    assert result.returncode in (1, 2), result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("vicinal: error: ")
    return lines[0]
