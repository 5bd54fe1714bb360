"""What a job needs of the nodes that it runs on, whatever they are made of."""

import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.layout import EXCHANGE, NODE_DIRECTORY

if TYPE_CHECKING:
    import psutil

START = "start the cluster with `vicinal start`, or see `vicinal status`"
"""What to do about a node that does not run, where the cluster's name is not at hand."""

_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Places:
    """Where the nodes of a cluster, and its head, find what jobs need."""

    exchange: str = EXCHANGE
    """Directory that all of them share; it holds regions, and no other channel."""
    own: str = NODE_DIRECTORY
    """Directory for the session files of launchers."""
    launcher: str = ""
    """Address by which nodes reach the launcher; empty: they know its host's name."""

    @property
    def remote_shell(self) -> str:
        """Executable that launchers use in place of ssh: REMOTE-SHELL HOST COMMAND..."""
        return f"{self.exchange}/remote-shell"

    @property
    def rank(self) -> str:
        """Script that prepares a rank: layout.RANK_TEXT."""
        return f"{self.exchange}/rank"


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
    def places(self) -> Places:
        """Where nodes find what is theirs."""

    @property
    def exchange(self) -> Path:
        """The directory for regions as this process sees it; nodes see it as places.exchange."""

    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """The command line that runs `command` at the head, where the remote shell is."""

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill what head_command() started, if it has not ended, and reap it."""

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what head_command() started."""

    def processes(self, node: str | None = None) -> "list[psutil.Process]":
        """The processes of jobs in one node or in all; host process ids."""

    def clear(self) -> None:
        """Kill what jobs left in the nodes, so that the next finds them as new."""

    def ended_nodes(self) -> list[str]:
        """Names of nodes that ended by themselves."""


class ClusterNodes(JobNodes, Protocol):
    """Nodes of a cluster that has a file: one gets into them, too."""

    def exec_command(
        self, name: str, command: Sequence[str], *, tty: bool = False, directory: str = "/"
    ) -> list[str]:
        """The command line that runs `command` in a node. Raises VicinalError."""


def check_joined(nodes: Sequence[str], alone: Collection[str]) -> None:
    """Raise VicinalError where a job is to have several nodes, and one of them has no network."""
    cut_off = [node for node in nodes if node in alone]
    if len(nodes) > 1 and cut_off:
        raise VicinalError(
            f"{cut_off[0]} has no network, by which a launcher could start ranks on it and on "
            f"{next(node for node in nodes if node != cut_off[0])}",
            "let one node have all ranks (-n 1, or a cluster of one node), start a launcher in a "
            "node by `vicinal exec`, or give the nodes a network",
        )


def check_running(cluster: str, ended: Sequence[str], nodes: int) -> None:
    """Raise VicinalError where some of a cluster's nodes do not run: `ended`, of so many."""
    start = f"`vicinal start {cluster}`"
    if ended and len(ended) == nodes:
        raise VicinalError(f"the cluster {cluster} is stopped", f"start it with {start}")
    if ended:
        raise VicinalError(
            f"{', '.join(ended)} of the cluster {cluster} does not run",
            f"see `vicinal status {cluster}`, and start it with {start}",
        )


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
    import psutil

    with suppress(psutil.Error):
        for process in psutil.Process(running.pid).children():
            process.send_signal(number)
