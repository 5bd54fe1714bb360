"""What a job over hosts has on each of them: a directory in memory, held by the job's agent there.

An agent locks its job's directory, and the kernel drops the lock of a process that ends, whatever
ends it. So a directory that nobody holds was left by an agent that was killed, and the next one of
that user takes it away.
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
        """The directory of the job with that mark, on any host; new_mark() makes one."""
        return cls(_DIRECTORY / f"{_PREFIX}{mark}")

    @property
    def region(self) -> Path:
        """The job's region."""
        return self.directory / "region"

    @property
    def files(self) -> Path:
        """The directory in which its ranks run, if it has input files."""
        return self.directory / "files"

    def make(self) -> None:
        """Make the directory and hold it; it is there where two names of hosts are one host.

        Raises VicinalError where it cannot be made, or is somebody else's.
        """
        if self._lock is None:
            try:
                self._lock = _held(self.directory)
            except OSError as error:
                raise VicinalError(
                    f"{self.directory} cannot be made ({describe_os_error(error)})",
                    "make room there",
                ) from error

    def write(self, files: Mapping[str, str]) -> None:
        """Write the input files, text by name; raises VicinalError where that cannot be done."""
        try:
            self.files.mkdir(exist_ok=True)
            for name, text in files.items():
                (self.files / name).write_text(text)
        except OSError as error:
            raise VicinalError(
                f"the job's files cannot be written to {self.files} ({describe_os_error(error)})",
                "make room there",
            ) from error

    def remove(self) -> None:
        """Take it away, as far as it is there. Ranks keep the region that they have mapped."""
        self.region.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def regions() -> Iterator[Path]:
    """The regions of this user's jobs on this host."""
    for region in _DIRECTORY.glob(f"{_PREFIX}*/region"):
        with suppress(OSError):
            if region.stat().st_uid == os.getuid():
                yield region


def take_away_left_behind() -> None:
    """Remove what agents of this user left on this host that were killed."""
    for directory in _DIRECTORY.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            held = lock(directory, _OPENED, check=_check_owner)
            HostFiles(directory).remove()
            os.close(held)


def new_mark() -> str:
    """A mark for a job: the name of its directory is the same where its user is another."""
    return f"{os.getuid()}-{secrets.token_hex(8)}"


def _held(directory: Path) -> int:
    """Make a job's directory and share its lock with the job's other agents here."""
    return lock(
        directory,
        _OPENED,
        shared=True,
        seconds=None,
        make=lambda: directory.mkdir(mode=0o700, exist_ok=True),
        check=_check_owner,
    )


def _check_owner(found: os.stat_result) -> None:
    """Everybody may write to /dev/shm: a name there may be somebody else's."""
    if found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to somebody else")
