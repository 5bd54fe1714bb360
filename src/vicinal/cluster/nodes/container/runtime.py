"""Container runtimes, which create the nodes of a cluster.

Each runtime is an existing program, behind one protocol. It runs in the cluster's head, and puts a
node into a network namespace that was created before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from vicinal.cluster.nodes.container.cgroup import Group
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.root import Mount
from vicinal.cluster.nodes.container.spec import ContainerSpec

START_SECONDS = 30.0

FIRST_PROCESS = (
    "/bin/sh",
    "-c",
    # The shell reaps orphaned processes, and exits at once on SIGTERM.
    "trap 'exit 0' TERM INT; echo ready; exec >/dev/null 2>&1; "
    "while :; do sleep 86400 & wait; done",
)
"""The command of a node's first process, which keeps the node up and writes "ready"."""


class NodeState(StrEnum):
    """Whether a node runs."""

    RUNNING = "running"
    STOPPED = "stopped"
    """The node's files exist, but its first process does not run."""
    ABSENT = "absent"


@dataclass(frozen=True)
class Prepared:
    """A node that is prepared for its start."""

    spec: ContainerSpec
    directory: str
    """The head's path of the directory with the node's files."""
    network: str | None
    """The head's file of the network namespace to join; None: nodes share the host's network."""
    mounts: Sequence[Mount]
    groups: Sequence[Group]
    """Existing control groups for the node."""
    environment: dict[str, str]
    """Variables of the runtime and of the node's first process."""


@dataclass(frozen=True)
class Entry:
    """How the head runs a command in a node: parts of a command line, in their order."""

    command: list[str]
    tty: list[str]
    """Options for a command with a terminal."""
    variables: str
    """Option before each variable; empty if the command inherits all variables."""
    directory: str
    """Option before the working directory; empty if there is no such option."""
    node: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the runtime's part of the entry that remote_shell.py reads."""
        return dict(vars(self))


class Runtime(Protocol):
    """A container runtime."""

    @property
    def name(self) -> str:
        """The name by which users choose the runtime."""

    @property
    def program(self) -> str:
        """The path of the runtime's executable on the host."""

    def start(self, head: Head, node: Prepared) -> None:
        """Start a node, which runs when this method returns. Raises VicinalError."""

    def process(self, head: Head, node: str) -> int | None:
        """Return the head's PID of a node's first process; None if none was started."""

    def entry(self, node: Prepared, process: int) -> Entry:
        """Return how to run commands in a running node; `process` is its first process."""

    def remove(self, head: Head, node: str) -> None:
        """Kill a node, even during its start, and remove the runtime's files of the node."""
