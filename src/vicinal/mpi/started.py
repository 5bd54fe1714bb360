"""A job whose launcher was started: waiting for it, and ending it, however it was started."""

import os
import select
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, ClassVar, Self

from vicinal.base.errors import TimeLimitError
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.traffic import JobTraffic

Stream = IO[bytes] | int | None
"""Standard input or output of a job as subprocess takes it; None means this process's own."""

_LOOK_SECONDS = 1.0


class StartedJob(ABC):
    """A job from its start to its end; as a context manager it leaves nothing behind."""

    grace_seconds: ClassVar[float] = 3.0
    """How long a launcher that was asked to end may take."""

    path: MessagePath
    """How its messages travel."""

    notes: Sequence[str] = ()
    """What its user has to know of the way that it runs, to be said at its start."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._launcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def launcher(self) -> subprocess.Popen[bytes]:
        """The process that was started, of a job that was not closed."""
        assert self._launcher is not None
        return self._launcher

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the job's end and return its status, as a shell would give it.

        Raises VicinalError `timeout` seconds after its start, and what look() raises; the job is
        then still there for close() to end.
        """
        until = None if timeout is None else self.started + timeout
        # A descriptor rather than polling: ranks may need every core.
        end = os.pidfd_open(self.launcher.pid) if self.launcher.poll() is None else None
        try:
            while end is not None:
                left = _LOOK_SECONDS
                if until is not None:
                    left = min(left, max(0.0, until - time.monotonic()))
                if select.select([end], [], [], left)[0]:
                    break
                self.look()
                if until is not None and time.monotonic() >= until:
                    raise TimeLimitError(
                        f"the job did not end within {timeout:g} s{self.why_late()}",
                        "allow it more time, or see what its ranks wait for",
                    )
        finally:
            if end is not None:
                os.close(end)
        status = self.launcher.wait()
        return status if status >= 0 else 128 - status

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the job to end, and see that it does."""
        self.forward(number)
        if self._launcher is not None:
            with suppress(subprocess.TimeoutExpired):
                self._launcher.wait(self.grace_seconds)
        self.close()

    def why_late(self) -> str:
        """A phrase about what keeps the job, to follow that it did not end in time."""
        return ""

    @abstractmethod
    def traffic(self) -> JobTraffic | None:
        """What its regions say now of its messages; None for a job without a region.

        Raises VicinalError where a region cannot be read.
        """

    @abstractmethod
    def look(self) -> None:
        """Called once a second while the job is waited for: raise what should end that."""

    @abstractmethod
    def forward(self, number: signal.Signals) -> None:
        """Hand a signal to the launcher, which hands it to the ranks or ends them."""

    @abstractmethod
    def close(self) -> None:
        """End what still runs, and take away what was made for it. Can be repeated."""
