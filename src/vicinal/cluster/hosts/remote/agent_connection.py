"""A connection to Vicinal's agent on a host, by ssh or a step of Slurm.

Requests are lines of JSON, and answers are lines of JSON behind a mark.
"""

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import vicinal
from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError
from vicinal.base.printable import printable
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.hosts.remote.reach import Reach

_PACKAGE = Path(vicinal.__file__).resolve().parents[1]
_SEARCH = {"PYTHONPATH": str(_PACKAGE)}

_ANSWER_SECONDS = 30.0
_STOP_SECONDS = 10.0
_MOST_BYTES = 16 << 20
_NOT_FOUND = (126, 127)


class AgentConnection:
    """A connection to an agent on a host, until close(). Errors name the host."""

    module: str
    """The Python module of the agent."""
    mark: str
    """Start of the agent's lines."""
    part: str
    """The object of the agent's work in messages, such as `the cluster`."""

    def __init__(self, host: Host, reach: Reach) -> None:
        self.host = host
        self.reach = reach
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (close() closes it)
        self._received = b""
        try:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ | _SEARCH,
                start_new_session=True,  # Ctrl-C must reach only the command, which closes in order
            )
        except FileNotFoundError as error:
            self._errors.close()
            raise VicinalError(
                f"the program {reach.value} was not found", f"install {reach.package}"
            ) from error

    def command(self) -> list[str]:
        """Return the command line that runs the agent, with this process's input and output."""
        own = [sys.executable, "-P", "-m", self.module]
        return (
            own if self.host.is_this else self.reach.command(self.host.name, [*searching(), *own])
        )

    def absent(self, said: str) -> tuple[str, str]:
        """Return message and remedy for a host on which the agent is missing."""
        ours = checkout() or _PACKAGE
        return (
            f"Vicinal is not installed at the same path as on this host ({said})",
            f"install {sys.executable} and {ours} there too, or share the file system",
        )

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._process.poll() is not None

    def hang_up(self) -> None:
        """End the requests, so that the agent undoes its work, without waiting."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self, seconds: float = _STOP_SECONDS) -> None:
        """End the requests, wait up to `seconds` for the agent's end, and then kill it."""
        self.hang_up()
        assert self._process.stdout is not None
        # The output ends with the agent; wait() with a timeout would poll.
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready = select.select([self._process.stdout], [], [], left)[0]
            if not ready or not os.read(self._process.stdout.fileno(), 65536):
                break
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # _receive() finds out why
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        """Return the agent's next answer. Raises VicinalError for its error, end or silence."""
        message = self._message()
        if "error" in message:
            raise self._trouble(str(message["error"]), str(message.get("remedy")))
        return message

    def _message(self) -> dict[str, Any]:
        """Return the agent's next message, which may be an error.

        Raises VicinalError for the agent's end or silence.
        """
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            line = self._line(deadline).decode(errors="replace")
            if line.startswith(self.mark):
                break
        try:
            return dict(json.loads(line.removeprefix(self.mark)))
        except (ValueError, TypeError) as error:
            raise self._trouble(
                "its agent's answer is malformed", "check which Vicinal is installed there"
            ) from error

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._received:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise self._trouble(
                    f"it did not answer within {_ANSWER_SECONDS:g} s",
                    f"check whether `{self.reach.trial(self.host.name)}` ends",
                )
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more or len(self._received) > _MOST_BYTES:
                raise self._ended()
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ended(self) -> VicinalError:
        """Return the error for an agent that ended instead of answering."""
        try:
            status = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines()]
        said = printable(next((line for line in reversed(lines) if line), f"status {status}"))
        if self.reach.failed(status, said):
            said = re.sub(r"^(ssh|srun): (error: )?", "", said)
            trial = self.reach.trial(self.host.name)
            return self._trouble(
                f"{self.reach.value} does not reach it ({said})",
                f"check the host's name, and that `{trial}` works without a prompt",
            )
        if status in _NOT_FOUND or "No module named" in said:
            return self._trouble(*self.absent(said))
        return self._trouble(
            f"its agent for {self.part} ended ({said})", "run the command again on that host"
        )

    def _trouble(self, message: str, remedy: str) -> VicinalError:
        return VicinalError(f"host {self.host.name}: {printable(message)}", printable(remedy))


def searching() -> list[str]:
    """Return words before a Python command line on another host, so that it finds this package."""
    return ["env", *(f"{name}={value}" for name, value in _SEARCH.items())]
