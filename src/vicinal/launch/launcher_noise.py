"""Removes warnings of Open MPI's launcher that concern the launcher itself from standard error.

PRRTE (5.0.11) puts each remote shell into a process group of its own twice, from the parent and
from the child. It warns if the child was first, which on two cores happens in every other job. No
user can act on the warning. It comes through the same stream as the ranks' own output, so that
output passes through this module.
"""

import os
import re
import select
import threading
from contextlib import suppress
from typing import Self

from vicinal.mpi.libraries import Family, Installation
from vicinal.mpi.started import Stream

_NOISE = re.compile(
    rb"\[[^\]\s]{1,128}:\d+\] plm:(ssh|rsh): Warning: setpgid\(\d+,\d+\) failed in parent "
    rb"with errno=Permission denied\(13\)\r?\n"
)
_AFTER_NAME = b" plm:"
_LONGEST = 256
"""Bytes of such a line, at most."""

_HOLD_SECONDS = 0.1
"""How long the beginning of a line is held back that may become such a warning."""

_LAST_SECONDS = 2.0
"""How long to wait for the last output of a launcher that ended; other processes may hold the
stream open."""


class LauncherErrors:
    """Standard error for a launcher: all output goes on to another stream, except such warnings."""

    def __init__(self, mpi: Installation, stderr: Stream) -> None:
        self.stream: Stream = stderr
        """The stream to give to the launcher."""
        self._thread: threading.Thread | None = None
        if mpi.family is not Family.OPENMPI:
            return
        target = 2 if stderr is None else stderr if isinstance(stderr, int) else stderr.fileno()
        if target < 0:  # DEVNULL, or subprocess creates its own pipe
            return
        source, self.stream = os.pipe()
        self._thread = threading.Thread(target=_pass_on, args=(source, target), daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close this process's end after the launcher started or failed to start."""
        if self._thread is not None:
            assert isinstance(self.stream, int)
            os.close(self.stream)
            self._thread.start()

    def finish(self) -> None:
        """Wait until all output of the launcher is passed on."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)


def filtered(data: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """Split output into the bytes to pass on now and the beginning of a line to hold back."""
    begin = data.rfind(b"\n") + 1
    whole, rest = data[:begin], data[begin:]
    kept = b"".join(line for line in whole.splitlines(True) if not _NOISE.fullmatch(line))
    if last or not _may_become_noise(rest):
        return kept + rest, b""
    return kept, rest


def _may_become_noise(line: bytes) -> bool:
    if not line.startswith(b"[") or len(line) > _LONGEST:
        return False
    _, closed, after = line.partition(b"]")
    return not closed or after[: len(_AFTER_NAME)] == _AFTER_NAME[: len(after)]


def _pass_on(source: int, target: int) -> None:
    held = b""
    try:
        while True:
            if held and not select.select([source], [], [], _HOLD_SECONDS)[0]:
                held = _write(target, held)
                continue
            data = os.read(source, 65536)
            if not data:
                break
            now, held = filtered(held + data, last=False)
            _write(target, now)
        _write(target, held)
    finally:
        os.close(source)


def _write(target: int, data: bytes) -> bytes:
    """Write all bytes, and return no rest. Bytes for a stream without a reader are dropped."""
    with suppress(OSError):
        while data:
            data = data[os.write(target, data) :]
    return b""
