"""A job whose launcher has started: waiting for its end, and ending it, for all kinds of jobs."""

import os
import select
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, ClassVar, Protocol, Self

from vicinal.base.errors import TimeLimitError
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import CompletedJob
from vicinal.mpi.traffic import JobTraffic
from vicinal.region import RegionState

Stream = IO[bytes] | int | None
"""Standard input or output of a job as subprocess takes it; None means this process's own."""

_LOOK_SECONDS = 1.0


class StartedJob(ABC):
    """A job from its start to its end; as a context manager it leaves nothing behind."""

    grace_seconds: ClassVar[float] = 3.0
    """Time that a launcher has to end after a request."""

    path: MessagePath
    """How its messages travel."""

    notes: Sequence[str] = ()
    """Notes for the user about this way of running the job, printed at its start."""

    lost: Sequence[str] = ()
    """Names of hosts whose connection was lost while the job ran."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._launcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def launcher(self) -> subprocess.Popen[bytes]:
        """The launcher's process. The job must have started and must not be closed."""
        assert self._launcher is not None
        return self._launcher

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the job's end and return its status in a shell's convention.

        Raises TimeLimitError `timeout` seconds after the job's start, and any error of
        check_alive(). The job still exists then, and close() ends it.
        """
        until = None if timeout is None else self.started + timeout
        # A descriptor instead of polling, because ranks may need every core.
        end = os.pidfd_open(self.launcher.pid) if self.launcher.poll() is None else None
        try:
            while end is not None:
                left = _LOOK_SECONDS
                if until is not None:
                    left = min(left, max(0.0, until - time.monotonic()))
                if select.select([end], [], [], left)[0]:
                    break
                self.check_alive()
                if until is not None and time.monotonic() >= until:
                    raise TimeLimitError(
                        f"the job did not end within {timeout:g} s{self.why_late()}",
                        "give the job more time, or find out what its ranks wait for",
                    )
        finally:
            if end is not None:
                os.close(end)
        status = self.launcher.wait()
        return status if status >= 0 else 128 - status

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the job to end, wait for grace_seconds, and close the job."""
        self.forward(number)
        if self._launcher is not None:
            with suppress(subprocess.TimeoutExpired):
                self._launcher.wait(self.grace_seconds)
        self.close()

    def why_late(self) -> str:
        """A phrase about the cause of a delay, appended to the message that the job did not end in
        time."""
        return ""

    def region_states(self) -> Sequence[RegionState]:
        """What each of its regions on this host says of the job now."""
        return ()

    @abstractmethod
    def traffic(self) -> JobTraffic | None:
        """What its regions say now of its messages; None for a job without a region.

        Raises VicinalError where a region cannot be read.
        """

    @abstractmethod
    def check_alive(self) -> None:
        """Called once a second while wait() waits. Raises an error that should end the wait."""

    @abstractmethod
    def forward(self, number: signal.Signals) -> None:
        """Send a signal to the launcher, which forwards it to the ranks or ends them."""

    @abstractmethod
    def close(self) -> None:
        """End all that still runs of the job, and remove what was created for it. Can be called
        again."""


class JobStart(Protocol):
    """A function that starts a job with these streams, such as a class of jobs."""

    def __call__(self, *, stdin: Stream, stdout: Stream, stderr: Stream) -> StartedJob:
        """Start the job. Raises VicinalError if it cannot be started."""


def run_to_end(
    start: JobStart, *, timeout: float | None = None, stdin: bytes = b""
) -> CompletedJob:
    """Start a job, wait for its end, and return its output. Nothing of the job is left then.

    Raises VicinalError if the job cannot be started, if a node ends before the job, or after
    `timeout` seconds.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given.write(stdin)
        given.seek(0)
        source = given if stdin else subprocess.DEVNULL
        with start(stdin=source, stdout=output, stderr=errors) as running:
            returncode = running.wait(timeout)
            seconds = time.monotonic() - running.started
            regions = tuple(running.region_states())
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    region = regions[0] if regions else None
    return CompletedJob(returncode, texts[0], texts[1], seconds, region, regions)
