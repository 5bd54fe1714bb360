"""What a launch left, whatever became of it."""

import errno
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, Protocol

from vicinal.base.errors import TimeLimitError, VicinalError, describe_os_error

_KEPT_BYTES = 1 << 20
"""Of each output of a launch that failed; what is wrong is said at an end of it."""

_ROOM_BYTES = 4096
"""That there must be behind an output, or its end may be missing."""

_LIMIT = "the limit of a launch here: give launches more by --timeout, or see what it waits for"


@dataclass(frozen=True)
class Launched:
    """One launch, at its end."""

    stdout: bytes
    stderr: bytes
    seconds: float
    """From its start to its end."""
    trouble: str | None = None
    """Why its figures are none."""

    @property
    def outputs(self) -> dict[str, bytes]:
        """What it wrote, as far as it is kept of one that failed."""
        written = {"stdout": self.stdout, "stderr": self.stderr}
        return {name: _shortened(content) for name, content in written.items() if content}


class Running(Protocol):
    """What was started: a job, or a pair of programs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises VicinalError where it does not end in time."""


Start = Callable[[IO[bytes], IO[bytes], IO[bytes]], AbstractContextManager[Running]]
"""Starts it with these as its input, output and errors; at the end nothing of it is left."""


def launch(start: Start, stdin: bytes, seconds: float) -> Launched:
    """Start something, wait for its end for so many seconds at most, and keep what it wrote.

    Raises VicinalError where what it writes has no room: such output says nothing of the program.
    """
    with _temporary() as given, _temporary() as output, _temporary() as errors:
        with _writing():
            if given.write(stdin) < len(stdin):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        given.seek(0)
        began = time.monotonic()
        trouble = None
        try:
            with start(given, output, errors) as running:
                status = running.wait(seconds)
                took = time.monotonic() - began
            if status != 0:
                trouble = f"it ended with status {status}"
        except TimeLimitError as error:
            took = time.monotonic() - began
            trouble = f"{error.message}, {_LIMIT}"
        except VicinalError as error:
            took = time.monotonic() - began
            trouble = str(error)
        except OSError as error:  # of a node that is just ending, say
            took = time.monotonic() - began
            trouble = f"it could not be run ({describe_os_error(error)})"
        written = []
        for stream in (output, errors):
            _check_room(stream)
            stream.seek(0)
            written.append(stream.read())
        if trouble is not None and (said := _first_words(written)):
            trouble = f"{trouble} ({said})"
        return Launched(written[0], written[1], took, trouble)


def _temporary() -> IO[bytes]:
    with _writing():
        return tempfile.TemporaryFile(buffering=0)


def _check_room(stream: IO[bytes]) -> None:
    """Raise VicinalError where a file could not have got longer."""
    with _writing():
        end = os.fstat(stream.fileno()).st_size
        os.posix_fallocate(stream.fileno(), end, _ROOM_BYTES)
        os.ftruncate(stream.fileno(), end)


@contextmanager
def _writing() -> Iterator[None]:
    """Says in our words that a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise VicinalError(
            "what programs print cannot be written to the directory for temporary files "
            f"({describe_os_error(error)}); all trials before are kept",
            "make room in it, or let TMPDIR name another, and go on with --resume",
        ) from error


def source(given: IO[bytes], stdin: bytes) -> IO[bytes] | int:
    """The input of a program: nothing is no empty file, which launchers treat differently."""
    return given if stdin else subprocess.DEVNULL


def _first_words(written: list[bytes]) -> str:
    """The first line of its errors that says something."""
    for line in written[1].decode(errors="replace").splitlines():
        if any(letter.isalpha() for letter in line):
            return line.strip()[:200]
    return ""


def _shortened(content: bytes) -> bytes:
    """The beginning and the end of what is too long to be kept."""
    if len(content) <= _KEPT_BYTES:
        return content
    half = _KEPT_BYTES // 2
    left_out = len(content) - 2 * half
    return content[:half] + f"\n[{left_out} bytes left out]\n".encode() + content[-half:]
