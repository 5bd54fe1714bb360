"""The checkout, what is built in it, and the command as tests call it."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]

BUILD_SECONDS = 600.0
"""A guard against hangs: this build may wait for another process that makes the same build."""

_WAITING = re.compile(r"vicinal: .* \.\.\.")

Vicinal = Callable[..., subprocess.CompletedProcess[str]]


def made(kind: str) -> Path:
    """The folder build/KIND, with everything that `scripts/build KIND` makes in it."""
    subprocess.run([CHECKOUT / "scripts/build", kind], check=True, timeout=BUILD_SECONDS)
    return CHECKOUT / "build" / kind


def without_waiting(stderr: str) -> list[str]:
    """The lines of a command, without the lines that say what it waits for on a busy machine.

    See src/vicinal/base/waiting.py.
    """
    return [line for line in stderr.splitlines() if not _WAITING.fullmatch(line)]


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The single line of a failed command. Fails the test if there are more, or if it succeeded."""
    assert result.returncode in (1, 2), result
    lines = without_waiting(result.stderr)
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("vicinal: error: ")
    return lines[0]
