"""The protocols by which jobs and commands use nodes of any kind.

    ClusterNodes    all nodes of a cluster: start a job on them, run a command in one
    OwnNodes        the nodes of a cluster on this host, and requests of another host's command
    JobNodes        nodes whose head runs a job's launcher
    JobGuests       virtual machines, the first of which runs a job's launcher

The nodes choose a method of Launchers, and that method, in the part `launch`, starts the job.
"""

import signal
import subprocess
from collections.abc import Callable, Collection, Container, Mapping, Sequence
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

START = "start the cluster with `vicinal start`, or check `vicinal status`"
"""The remedy for a node that does not run, if the cluster's name is unknown."""


@dataclass(frozen=True)
class JobPaths:
    """Paths and addresses that jobs use in the nodes and the head of a cluster."""

    exchange: str = EXCHANGE
    """Directory that all nodes share; it contains regions, and no other channel."""
    own: str = NODE_DIRECTORY
    """Directory for the session files of launchers."""
    launcher: str = ""
    """Address by which nodes reach the launcher; empty: they know its host's name."""

    @property
    def remote_shell(self) -> str:
        """Path of the executable that launchers use instead of ssh: REMOTE-SHELL HOST COMMAND..."""
        return f"{self.exchange}/remote-shell"

    @property
    def rank(self) -> str:
        """Path of the script that prepares a rank: layout.RANK_TEXT."""
        return f"{self.exchange}/rank"


@dataclass(frozen=True)
class Node:
    """A node, as other nodes know it."""

    name: str
    address: str
    """IPv4 address; an address of the host if nodes share the host's network."""
    pid_namespace: str
    """PID namespace of the node, in the format of /proc/PID/ns/pid; empty if unknown."""


class JobNodes(Protocol):
    """Nodes of this host, and the head from which launchers reach them."""

    @property
    def nodes(self) -> list[Node]:
        """The nodes, in order."""

    @property
    def job_paths(self) -> JobPaths:
        """Paths and addresses for jobs in the nodes."""

    @property
    def exchange(self) -> Path:
        """The path of job_paths.exchange for this process."""

    def seen_from_host(self, path: str) -> Path:
        """Return the path by which this process reaches a file or directory of the head."""

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """Return the command line that runs `command` at the head, which has the remote shell."""

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill and reap a process that head_command() started."""

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a process that head_command() started."""

    def processes(self, node: str | None = None) -> "list[psutil.Process]":
        """Return the processes of jobs in a node, or in all nodes, with PIDs of the host."""

    def clear(self) -> None:
        """Kill processes that jobs left in the nodes."""

    def ended_nodes(self) -> list[str]:
        """Return the names of nodes that ended by themselves."""


class JobGuest(Protocol):
    """A guest in which a job runs."""

    @property
    def name(self) -> str:
        """The guest's host name."""

    def command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return the command line on this host that runs a command in the guest.

        See GuestCommands.command().
        """

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the guest to its end; see GuestShell.run()."""

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file of this host into the guest."""

    def is_lost(self, status: int) -> bool:
        """Whether this exit status of command() can mean that the connection ended."""


class JobImage(Protocol):
    """The image of guests."""

    def has(self, path: Path) -> bool:
        """Whether a file of this host is in the image too."""


class JobGuests(Protocol):
    """Guests that reach each other by a network, and have one common region or several.

    Call enter() before a job starts.
    """

    @property
    def guests(self) -> Sequence[JobGuest]:
        """The guests, in order; launchers run in the first."""

    @property
    def image(self) -> JobImage:
        """The image that the guests have booted."""

    @property
    def network(self) -> "GuestNetwork":
        """The kind of network between the guests."""

    def inspect_all(self) -> "tuple[RegionState, ...]":
        """Return the states of the guests' regions on this host."""

    @property
    def alone(self) -> Collection[str]:
        """Names of the guests that have no network with the other guests."""

    def enter(self) -> None:
        """Connect to each guest. Raises VicinalError if a guest does not run."""

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError if the region has no room for `ranks` ranks, or lacks required heaps.

        For guests of other hosts, enter() raises the error.
        """

    def check(self) -> None:
        """Raise VicinalError if a guest ended, and tell the members of its regions."""

    def traffic(self, job: int) -> "JobTraffic | None":
        """Return what the regions count of a job; None without regions."""


class Launchers(Protocol):
    """The functions of the part `launch` that start a job on nodes, one for each way into nodes."""

    def at_head(
        self,
        job: "Job",
        nodes: JobNodes,
        regions: "Callable[[int], JobTraffic | None] | None" = None,
    ) -> "StartedJob":
        """Start a job by a launcher at the head.

        If regions of other hosts belong to the job, `regions` returns what all regions count of the
        job with a number.
        """

    def in_first_guest(self, job: "Job", guests: JobGuests) -> "StartedJob":
        """Start a job by a launcher in the first guest, which reaches the other guests by ssh."""


class ClusterNodes(Protocol):
    """All nodes of a cluster, of any kind; call close() at the end."""

    def has(self, node: str) -> bool:
        """Whether the cluster has a node of this name."""

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        """Return the command line that runs `command` in a node.

        Raises VicinalError if the node does not exist or does not run.
        """

    def start_job(self, job: "Job", launchers: Launchers) -> "StartedJob":
        """Start a job on the nodes, by their region if the job's path is the region.

        Raises VicinalError if the nodes do not run, or cannot run the job.
        """

    def close(self) -> None:
        """Close the connections that the other methods opened."""


class OwnNodes(ClusterNodes, Protocol):
    """The nodes of a cluster on this host, for commands of this host and other hosts."""

    def enter(self) -> None:
        """Check that all nodes run and can be reached. Raises VicinalError."""

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError without a region, or if it lacks room for `ranks` ranks or heaps."""

    def check(self, names: Container[str] | None = None) -> None:
        """Raise VicinalError if a node ended; `names` are the nodes to check, None: all."""

    def traffic(self, job: int) -> "JobTraffic | None":
        """Return what the region counts of a job; None without a region."""


def check_joined(nodes: Sequence[str], alone: Collection[str]) -> None:
    """Raise VicinalError if a job has several nodes, and one of them has no network."""
    cut_off = [node for node in nodes if node in alone]
    if len(nodes) > 1 and cut_off:
        raise VicinalError(
            f"a launcher cannot start ranks on {cut_off[0]} and on "
            f"{next(node for node in nodes if node != cut_off[0])}: {cut_off[0]} has no network",
            "place all ranks on one node (-n 1, or a cluster of one node), start a launcher in a "
            "node by `vicinal exec`, or give the nodes a network",
        )


def check_running(cluster: str, ended: Sequence[str], nodes: int) -> None:
    """Raise VicinalError if nodes of a cluster do not run.

    `ended` has their names, and `nodes` is the number of all nodes.
    """
    start = f"`vicinal start {cluster}`"
    if ended and len(ended) == nodes:
        raise VicinalError(f"the cluster {cluster} is stopped", f"start it with {start}")
    if ended:
        raise VicinalError(
            f"{', '.join(ended)} of the cluster {cluster} does not run",
            f"check `vicinal status {cluster}`, and start the cluster with {start}",
        )


def pid_namespace(process: Path) -> str:
    """Return the PID namespace of a process (/proc/PID) for Node; empty if the process ended."""
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:
        return ""
