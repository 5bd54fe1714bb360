"""What a job needs of the nodes that it runs on, whatever they are made of."""

import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Node:
    """One node, as its neighbours know it."""

    name: str
    address: str
    """IPv4 address; one of the host's own where nodes share its network."""
    pid_namespace: str
    """Its PID namespace as /proc/PID/ns/pid shows it."""


class JobNodes(Protocol):
    """Nodes of this host, and the head from which launchers reach them."""

    @property
    def nodes(self) -> list[Node]:
        """The nodes, in order."""

    @property
    def exchange(self) -> Path:
        """The directory for regions as this process sees it; nodes see it as EXCHANGE."""

    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """The command line that runs `command` at the head, where REMOTE_SHELL is."""

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill what head_command() started, if it has not ended, and reap it."""

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what head_command() started."""

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """The processes of jobs in one node or in all; host process ids."""

    def clear(self) -> None:
        """Kill what jobs left in the nodes, so that the next finds them as new."""

    def ended_nodes(self) -> list[str]:
        """Names of nodes that ended by themselves."""


def end_entered(running: subprocess.Popen[bytes]) -> None:
    """Kill a command that nsenter runs, if it has not ended, and reap it."""
    deadline = time.monotonic() + _KILL_SECONDS
    while running.poll() is None and time.monotonic() < deadline:
        # The command itself, which nsenter then reaps: our init might not, in a container.
        signal_entered(running, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            running.wait(_POLL_SECONDS)
    running.kill()
    running.wait()


def signal_entered(running: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a command that nsenter runs."""
    with suppress(psutil.Error):
        for process in psutil.Process(running.pid).children():
            process.send_signal(number)
