"""The agent of `vicinal run` on each host of a job: `python -m vicinal.launch.host_agent`.

The agent creates the region of the host's ranks, reports what the region says, and removes the
region at the end of its input. The input ends with the connection. So nothing is left on a host if
the command, its machine or the network between them is gone. If an agent is killed, the same user's
next agent removes what it left.

Requests are lines of JSON on stdin. Answers are lines of JSON on stdout after MARK, because login
scripts may write to stdout too.
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
from vicinal.region.heap_size import default_heap

MARK = "vicinal-host "

_REGION_VARIABLE = "VICINAL_REGION"
_GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class HostRequest:
    """What a host needs for a job."""

    version: str
    """The version of Vicinal that the requesting command has."""
    needed: list[str]
    """Paths of files that must exist on the host."""
    directory: str
    mark: str
    """The job's mark, in the name of its directory (host_files.py)."""
    region: bool
    """Whether the job has a region."""
    members: int
    section_bytes: int
    heap_bytes: int | None
    """None: the default."""
    label: str
    files: dict[str, str] = field(default_factory=dict)
    """Text by name, of the job's input files."""
    launcher_host: str = ""
    """The name by which the launcher's daemon on this host reaches the launcher; empty: unknown."""

    to_dict = asdict


def main() -> None:
    """Serve one job until the input ends."""
    try:
        # A launcher may send several signals: during the cleanup, further signals are ignored.
        with signals_raise():
            _serve()
    except Ended as ended:
        sys.exit(ended.status)
    except Exception as error:  # ssh shows the user our output on the other host
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
                # Slurm's scancel signals this agent and the launcher, whose end may have ended the
                # input just before. No further signal gets through.
                _take_away(request, made)
                raise


def _take_away(request: HostRequest, made: HostFiles) -> None:
    # Files first: the agent may be killed before the ranks have had their time to end.
    made.remove()
    if request.region:
        _end_ranks(made)


def _prepare(request: HostRequest, made: HostFiles) -> None:
    if request.version != vicinal.__version__:
        raise VicinalError(
            f"it has Vicinal {vicinal.__version__}, but version {request.version} started the job",
            "install the same version on all hosts",
        )
    for needed in request.needed:
        if not os.access(needed, os.R_OK | os.X_OK if "/lib" not in needed else os.R_OK):
            raise VicinalError(
                f"it has no {needed}, or this user may not read it",
                "install the file under the same path on all hosts, or use a shared filesystem",
            )
    try:
        os.chdir(request.directory)
    except OSError as error:
        raise VicinalError(
            f"it has no directory {request.directory} ({describe_os_error(error)})",
            "start the job in a directory that all hosts have",
        ) from error
    if request.launcher_host:
        _check_resolves(request.launcher_host)
    take_away_left_behind()
    if request.region or request.files:
        made.make()
    if request.files:
        made.write(request.files)
    if request.region and not made.region.exists():
        heap_bytes = request.heap_bytes
        if heap_bytes is None:
            heap_bytes = default_heap(
                request.members, request.section_bytes, directory=made.region.parent
            )
        create(
            made.region,
            members=request.members,
            section_bytes=request.section_bytes,
            heap_bytes=heap_bytes,
            label=request.label,
        )


def _check_resolves(name: str) -> None:
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise VicinalError(
            f"it cannot resolve '{name}', the name by which the launcher of MPICH is reached "
            f"({error.strerror})",
            f"give the name an address in /etc/hosts or DNS there, or set HYDRA_IFACE to the "
            f"network interface of '{name}' that the hosts reach",
        ) from error


def _answer(**message: Any) -> None:
    # If the command is gone, the input ends, and with it the job.
    with suppress(BrokenPipeError):
        sys.stdout.write(f"{MARK}{json.dumps(message)}\n")
        sys.stdout.flush()


def _answer_traffic(made: HostFiles) -> None:
    try:
        _answer(traffic=job_traffic(inspect(made.region, patience=0)).to_dict())
    except VicinalError as error:
        _answer(error=error.message, remedy=error.remedy)


def _end_ranks(made: HostFiles) -> None:
    """Wait for the job's ranks to end, as launchers let them end in order, then kill the ranks that
    are left.
    """
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
