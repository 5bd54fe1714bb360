"""Regions in /dev/shm that tests create: names that tell their owner, and removal after its end.

A test removes its regions itself. If its process is killed, the regions would take memory until the
host's next start. So their names contain the owner, `vicinal-test-SPACE-PROCESS-BEGAN-...`, and the
next check or run of pytest removes the regions of processes that have ended. It touches no other
file. Tests in C make the same names: tests/unit/shared_name.h.
"""

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

SHARED = Path("/dev/shm")
_NAME = re.compile(r"vicinal-test-(\d+)-(\d+)-(\d+)-[\w.-]+")


def new_shared_path(directory: Path = SHARED) -> Path:
    """A new path for a region, or for a directory, of this process."""
    owner = f"{_space()}-{os.getpid()}-{_began(os.getpid())}"
    return directory / f"vicinal-test-{owner}-{secrets.token_hex(3)}"


def remove_leftovers(directory: Path = SHARED) -> list[str]:
    """Remove what tests left that were killed, and return the names.

    Files of tests in other PID namespaces, whose processes this process does not see, stay.
    """
    removed = []
    for path in sorted(directory.glob("vicinal-test-*")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) != _space() or _began(int(match[2])) == int(match[3]):
            continue
        with suppress(OSError):  # another user's, or another check removed it first
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
            removed.append(path.name)
    return removed


def _space() -> int:
    """The number of this process's PID namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _began(process: int) -> int | None:
    """When a process began, in clock ticks since the host's start; None if it has ended."""
    try:
        # The name of the program, in brackets, may contain spaces and brackets.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
