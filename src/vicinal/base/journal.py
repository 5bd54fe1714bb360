"""A file of JSON lines that tells, after a crash, how far a command got.

A line is on the disk before the command goes on. A last line that is torn was not written, and what
it would have said was not done yet.
"""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.base.files import sync_directory


class LineJournal:
    """One such file. Whoever writes it keeps others from doing so, by a lock of theirs."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._torn = True
        """Whether its last line may be torn: it is not, once we have written one to its end."""

    def lines(self) -> list[bytes]:
        """The lines that were written to their end; none where there is no file."""
        try:
            return self.file.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line, which is on the disk when this returns. Raises OSError."""
        text = json.dumps(record) + "\n"
        fresh = not self.file.exists()
        file = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if self._torn:
                os.ftruncate(file, sum(len(line) + 1 for line in self.lines()))
            self._torn = True
            if os.write(file, text.encode()) < len(text.encode()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
            self._torn = False
        finally:
            os.close(file)
        if fresh:
            sync_directory(self.file.parent)
