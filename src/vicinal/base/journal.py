"""A file of JSON lines that shows, after a crash, how far a command got.

Each line is on the disk before the command continues. A torn last line counts as not written: the
step that the line would describe had not begun.
"""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.base.files import sync_directory


class LineJournal:
    """One journal file. The writer must hold a lock of its own that keeps other writers out."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._torn = True
        """Whether the last line may be torn. False after this object has written a complete
        line."""

    def lines(self) -> list[bytes]:
        """The complete lines; an empty list if there is no file."""
        try:
            return self.file.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line, and return after the line is on the disk. Raises OSError."""
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
