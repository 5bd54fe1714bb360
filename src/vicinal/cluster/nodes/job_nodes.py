"""What jobs and commands ask of nodes, whatever these are made of.

    ClusterNodes    all nodes of a cluster: start a job on them, run a command in one
    OwnNodes        the nodes that a cluster has on this host: also what another host asks of them
    JobNodes        where a job's launcher runs at a head
    ClusterGuests   where it runs in the first of several virtual machines

A cluster's nodes choose the way in, and Launchers, which is the part `launch`, starts the job.
"""

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.layout import EXCHANGE, NODE_DIRECTORY

if TYPE_CHECKING:
    import psutil

    from vicinal.cluster.vm.image.kind import GuestNetwork
    from vicinal.mpi.job import Job
    from vicinal.mpi.started import StartedJob
    from vicinal.mpi.traffic import JobTraffic
    from vicinal.region import RegionState

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


class JobGuest(Protocol):
    """What a job needs of one guest."""

    @property
    def name(self) -> str:
        """Its host name."""

    def command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command line on this host that runs a command in it: GuestCommands.command()."""

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it to its end: GuestShell.run()."""

    def copy_in(self, source: Path, target: str) -> None:
        """Put a file of this host into it."""


class JobImage(Protocol):
    """What guests have from the start."""

    def has(self, path: Path) -> bool:
        """Whether a file of this host is in them too."""


class JobGuests(Protocol):
    """Guests of this host that reach each other, and share a region or have one each."""

    @property
    def guests(self) -> Sequence[JobGuest]:
        """The guests, in order; launchers run in the first."""

    @property
    def image(self) -> JobImage:
        """What they booted."""

    @property
    def network(self) -> "GuestNetwork":
        """How they reach each other."""

    def inspect_all(self) -> "tuple[RegionState, ...]":
        """Their regions, as this host sees them."""


class ClusterGuests(JobGuests, Protocol):
    """The virtual machines of a cluster, as JobGuests; `enter()` first."""

    @property
    def alone(self) -> Collection[str]:
        """Names of those that have no network with the others."""

    def enter(self) -> None:
        """See that there is a connection to each. Raises VicinalError where one does not run."""

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError for a region without room for so many ranks, or without a heap.

        Guests of other hosts are asked by enter().
        """

    def check(self) -> None:
        """Raise VicinalError for a machine that ended."""

    def traffic(self, job: int) -> "JobTraffic | None":
        """What the regions say of the job of this number; None where there are none."""


class Launchers(Protocol):
    """The ways to start a job on nodes, which the part `launch` has: one for each way in."""

    def at_head(
        self,
        job: "Job",
        nodes: JobNodes,
        regions: "Callable[[int], JobTraffic | None] | None" = None,
    ) -> "StartedJob":
        """Start a job by a launcher at the head.

        `regions` says what all regions hold of a job of this number, if regions of other hosts
        belong to the job.
        """

    def in_first_guest(self, job: "Job", guests: ClusterGuests) -> "StartedJob":
        """Start a job by a launcher in the first guest, which reaches the other guests by ssh."""


class ClusterNodes(Protocol):
    """All nodes of a cluster, whatever these are made of: `close()` last."""

    def has(self, node: str) -> bool:
        """Whether there is a node of this name."""

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        """The command line that runs `command` in a node. Raises VicinalError."""

    def start_job(self, job: "Job", launchers: Launchers) -> "StartedJob":
        """Start a job on the nodes, through their region where the job's path is the region.

        Raises VicinalError where the nodes do not run, or cannot have the job.
        """

    def close(self) -> None:
        """End what was opened for this."""


class OwnNodes(ClusterNodes, Protocol):
    """The nodes that a cluster has on this host, as another host's command asks for them."""

    def enter(self) -> None:
        """See that all nodes run and can be reached. Raises VicinalError."""

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError for no region, too little room for so many ranks, or no heap."""

    def check(self, names: Container[str] | None = None) -> None:
        """Raise VicinalError for a node that ended; `names`: those that are still to be here."""

    def traffic(self, job: int) -> "JobTraffic | None":
        """What the region says of the job of this number; None where there is no region."""


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


class EnteredHead(ABC):
    """What JobNodes has of this where nsenter runs commands at the head."""

    @abstractmethod
    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""

    @property
    def places(self) -> Places:
        return Places()

    @property
    def exchange(self) -> Path:
        return self.seen_from_host(EXCHANGE)

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill what head_command() started, if it has not ended, and reap it."""
        deadline = time.monotonic() + _KILL_SECONDS
        while running.poll() is None and time.monotonic() < deadline:
            # The command itself, which nsenter then reaps: our init might not, in a container.
            self.signal_command(running, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                running.wait(_POLL_SECONDS)
        running.kill()
        running.wait()

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what head_command() started, which is a child of nsenter."""
        import psutil

        with suppress(psutil.Error):
            for process in psutil.Process(running.pid).children():
                process.send_signal(number)


def pid_namespace(process: "psutil.Process") -> str:
    """A process's PID namespace as Node has it; empty for a process that has ended."""
    try:
        return str(Path(f"/proc/{process.pid}/ns/pid").readlink())
    except OSError:
        return ""
