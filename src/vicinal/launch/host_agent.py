"""What `vicinal run` has on each host of a job: `python -m vicinal.launch.host_agent`.

It makes the region of that host's ranks, says what the region says when it is asked, and takes
the region away at the end of its input. As that ends with the connection, nothing is left on a
host when the command, its machine or the network in between is gone. What an agent leaves that is
killed, the user's next one takes away.

Requests come as lines of JSON on stdin; answers go to stdout as lines of JSON behind MARK, since
a login may write there too.
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

import vicinal
from vicinal.base.crash_report import report_crash
from vicinal.base.errors import VicinalError, describe_os_error, fail
from vicinal.base.signals import Ended, signals_raise
from vicinal.launch.host_files import HostFiles, take_away_left_behind
from vicinal.mpi.traffic import job_traffic
from vicinal.region import create, inspect

MARK = "vicinal-host "

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
    mark: str
    """The job's, in the name of its directory (host_files.py)."""
    region: bool
    """Whether it has a region."""
    members: int
    section_bytes: int
    heap_bytes: int
    label: str
    files: dict[str, str] = field(default_factory=dict)
    """Text by name, of the job's input files."""

    to_dict = asdict


def main() -> None:
    """Serve one job, until the end of the input."""
    try:
        # A launcher may send more than one signal: while we clean up, the others are ignored.
        with signals_raise():
            _serve()
    except Ended as ended:
        sys.exit(ended.status)
    except Exception as error:  # what we write, ssh shows the user on the other host
        sys.exit(fail(report_crash(error, sys.argv[1:], host=socket.gethostname())))


def _serve() -> None:
    with os.fdopen(0, "rb", closefd=False) as requests:
        request = HostRequest(**json.loads(requests.readline()))
        made = HostFiles.of_job(request.mark)
        try:
            _prepare(request, made)
            _answer(host=socket.gethostname())
            for line in requests:
                if line.strip() == b"traffic":
                    _answer_traffic(made)
                else:
                    _answer()
        except VicinalError as error:
            _answer(error=error.message, remedy=error.remedy)
        finally:
            try:
                _take_away(request, made)
            except Ended:
                # Slurm's scancel is told to us and to the launcher, whose end we may have heard of
                # just before. No other signal comes through.
                _take_away(request, made)
                raise


def _take_away(request: HostRequest, made: HostFiles) -> None:
    # The files first: we may be killed before the ranks have had their time.
    made.remove()
    if request.region:
        _end_ranks(made)


def _prepare(request: HostRequest, made: HostFiles) -> None:
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
    take_away_left_behind()
    if request.region or request.files:
        made.make()
    if request.files:
        made.write(request.files)
    if request.region and not made.region.exists():
        create(
            made.region,
            members=request.members,
            section_bytes=request.section_bytes,
            heap_bytes=request.heap_bytes,
            label=request.label,
        )


def _answer(**message: Any) -> None:
    # Whoever does not hear us is gone: the end of the requests is the end of the job.
    with suppress(BrokenPipeError):
        sys.stdout.write(f"{MARK}{json.dumps(message)}\n")
        sys.stdout.flush()


def _answer_traffic(made: HostFiles) -> None:
    try:
        _answer(traffic=job_traffic(inspect(made.region, patience=0)).to_dict())
    except VicinalError as error:
        _answer(error=error.message, remedy=error.remedy)


def _end_ranks(made: HostFiles) -> None:
    """End what is left of the job's ranks after a while, as launchers do that end in order."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while _ranks(made) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for rank in _ranks(made):
        with suppress(psutil.Error):
            rank.send_signal(signal.SIGKILL)


def _ranks(made: HostFiles) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(_REGION_VARIABLE) == f"file:{made.region}":
                found.append(process)
    return found


if __name__ == "__main__":
    main()
