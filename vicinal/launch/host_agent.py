"""What `vicinal run` has on each host of a job: `python -m vicinal.launch.host_agent`.

It makes the region of that host's ranks, says what the region says when it is asked, and takes
the region away at the end of its input. As that ends with the connection, nothing is left on a
host when the command, its machine or the network in between is gone.

Requests come as lines of JSON on stdin; answers go to stdout as lines of JSON behind MARK, since
a login may write there too.
"""

import json
import os
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

import vicinal
from vicinal.errors import VicinalError, describe_os_error
from vicinal.launch.traffic import job_traffic
from vicinal.region import create, inspect
from vicinal.signals import signals_raise

MARK = "vicinal-host "

HOST_DIRECTORY = "/dev/shm"
HOST_PREFIX = "vicinal-job-"
"""Where regions of hosts are, and what their names begin with; the user's number follows."""
FILES = ".files"
"""With this behind its name, the directory of a job's input files."""

_REGION_VARIABLE = "VICINAL_REGION"
_GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class HostRequest:
    """What a host needs for a job."""

    version: str
    """Vicinal's, of the command that asks."""
    needed: list[str]
    """Files that must be there, by the same path."""
    directory: str
    region: str | None
    """The file of the region to make; None for a job without one."""
    members: int
    section_bytes: int
    heap_bytes: int
    label: str
    files: dict[str, str] = field(default_factory=dict)
    """Text by name, of the job's input files."""
    files_directory: str | None = None
    """To make, with the files; None where there are none."""

    to_dict = asdict


def main() -> None:
    """Serve one job, until the end of the input."""
    request = None
    try:
        with signals_raise(), os.fdopen(0, "rb", closefd=False) as requests:
            request = HostRequest(**json.loads(requests.readline()))
            _prepare(request)
            _answer(host=socket.gethostname())
            for line in requests:
                if line.strip() == b"traffic":
                    _answer_traffic(request)
                else:
                    _answer()
    except VicinalError as error:
        _answer(error=error.message, remedy=error.remedy)
        if request is not None:
            _remove_files(request)
        request = None  # nothing else was made
    finally:
        # Whoever does not hear us is gone, which is no reason to leave anything.
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        if request is not None:
            _clean(request)


def _prepare(request: HostRequest) -> None:
    if request.version != vicinal.__version__:
        raise VicinalError(
            f"it has Vicinal {vicinal.__version__}, and the job was started by {request.version}",
            "install the same version on all hosts",
        )
    for needed in request.needed:
        if not os.access(needed, os.R_OK | os.X_OK if "/lib" not in needed else os.R_OK):
            raise VicinalError(
                f"it has no {needed}, or not for this user",
                "have it in the same place on all hosts, or use a shared filesystem",
            )
    try:
        os.chdir(request.directory)
    except OSError as error:
        raise VicinalError(
            f"it has no directory {request.directory} ({describe_os_error(error)})",
            "start the job in one that all hosts have",
        ) from error
    _write_files(request)
    if request.region is not None and not Path(request.region).exists():
        create(
            request.region,
            members=request.members,
            section_bytes=request.section_bytes,
            heap_bytes=request.heap_bytes,
            label=request.label,
        )


def _write_files(request: HostRequest) -> None:
    if request.files_directory is None:
        return
    directory = Path(request.files_directory)
    try:
        # There already where two names of hosts are one host.
        directory.mkdir(mode=0o700, exist_ok=True)
        for name, text in request.files.items():
            (directory / name).write_text(text)
    except OSError as error:
        raise VicinalError(
            f"the job's files cannot be written to {directory} ({describe_os_error(error)})",
            "make room there",
        ) from error


def _remove_files(request: HostRequest) -> None:
    if request.files_directory is not None:
        shutil.rmtree(request.files_directory, ignore_errors=True)


def _answer(**message: Any) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(message)}\n")
    sys.stdout.flush()


def _answer_traffic(request: HostRequest) -> None:
    try:
        assert request.region is not None
        _answer(traffic=job_traffic(inspect(request.region, patience=0)).to_dict())
    except VicinalError as error:
        _answer(error=error.message, remedy=error.remedy)


def _clean(request: HostRequest) -> None:
    """End what is left of the job's ranks, as launchers do that end in order, and the region."""
    _remove_files(request)
    if request.region is None:
        return
    deadline = time.monotonic() + _GRACE_SECONDS
    while _ranks(request.region) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for rank in _ranks(request.region):
        with suppress(psutil.Error):
            rank.send_signal(signal.SIGKILL)
    Path(request.region).unlink(missing_ok=True)


def _ranks(region: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(_REGION_VARIABLE) == f"file:{region}":
                found.append(process)
    return found


if __name__ == "__main__":
    main()
