"""The files of a job over hosts on each host: a directory in memory, locked by the job's agent.

An agent locks its job's directory, and the kernel drops the lock when the agent's process ends for
any reason. So an unlocked directory belongs to an agent that was killed, and the same user's next
agent removes the directory.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import DIRECTORY, lock

_DIRECTORY = Path("/dev/shm")
_PREFIX = "vicinal-job-"
_OPENED = DIRECTORY | os.O_NOFOLLOW


class HostFiles:
    """A job's directory on a host: its region, and the directory of its input files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: int | None = None

    @classmethod
    def of_job(cls, mark: str) -> Self:
        """The directory of the job with this mark, on any host; new_mark() creates marks."""
        return cls(_DIRECTORY / f"{_PREFIX}{mark}")

    @property
    def region(self) -> Path:
        return self.directory / "region"

    @property
    def files(self) -> Path:
        """The directory in which the ranks run if the job has input files."""
        return self.directory / "files"

    def make(self) -> None:
        """Create the directory and lock it; it already exists if two names of hosts are one host.

        Raises VicinalError if the directory cannot be created, or belongs to another user.
        """
        if self._lock is None:
            try:
                self._lock = _held(self.directory)
            except OSError as error:
                raise VicinalError(
                    f"{self.directory} cannot be created: {describe_os_error(error)}",
                    "free space in /dev/shm",
                ) from error

    def write(self, files: Mapping[str, str]) -> None:
        """Write the input files, text by name. Raises VicinalError if a file cannot be written."""
        try:
            self.files.mkdir(exist_ok=True)
            for name, text in files.items():
                (self.files / name).write_text(text)
        except OSError as error:
            raise VicinalError(
                f"the job's files cannot be written to {self.files}: {describe_os_error(error)}",
                "free space in /dev/shm",
            ) from error

    def remove(self) -> None:
        """Remove the directory as far as it exists. Ranks keep a region that they have mapped."""
        self.region.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def regions(*, of_all_users: bool = False) -> Iterator[Path]:
    """The regions of this user's jobs on this host, or of all users' jobs as far as they may be
    seen."""
    for region in _DIRECTORY.glob(f"{_PREFIX}*/region"):
        with suppress(OSError):
            if region.stat().st_uid == os.getuid() or of_all_users:
                yield region


def take_away_left_behind() -> None:
    """Remove what killed agents of this user left on this host."""
    for directory in _DIRECTORY.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            held = lock(directory, _OPENED, check=_check_owner)
            HostFiles(directory).remove()
            os.close(held)


def new_mark() -> str:
    """A mark for a job. It contains the user, so two users never have the same directory."""
    return f"{os.getuid()}-{secrets.token_hex(8)}"


def _held(directory: Path) -> int:
    """Create a job's directory and share its lock with the job's other agents on this host."""
    return lock(
        directory,
        _OPENED,
        shared=True,
        seconds=None,
        make=lambda: directory.mkdir(mode=0o700, exist_ok=True),
        check=_check_owner,
    )


def _check_owner(found: os.stat_result) -> None:
    """Any user may create names in /dev/shm: refuse a directory that belongs to another user."""
    if found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
