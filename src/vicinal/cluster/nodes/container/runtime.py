"""Container runtimes: who makes the nodes of a cluster.

Each is an existing program, behind one protocol. It runs in the cluster's head; a node's network
is there before it, and it joins that.
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
    # It reaps what is left to it, and ends at once when it is asked to.
    "trap 'exit 0' TERM INT; echo ready; exec >/dev/null 2>&1; "
    "while :; do sleep 86400 & wait; done",
)
"""What keeps a node up."""


class NodeState(StrEnum):
    """What has become of a node."""

    RUNNING = "running"
    STOPPED = "stopped"
    """What is written down of it is there, and no process."""
    ABSENT = "absent"


@dataclass(frozen=True)
class Prepared:
    """A node that can be started."""

    spec: ContainerSpec
    directory: str
    """The directory of its files, as the head sees it."""
    network: str | None
    """The network namespace to join, as the head sees it."""
    mounts: Sequence[Mount]
    groups: Sequence[Group]
    """Control groups that are there."""
    environment: dict[str, str]
    """Of its first process."""


@dataclass(frozen=True)
class Entry:
    """How a command gets into a node from the head: pieces of a command line."""

    command: list[str]
    tty: list[str]
    """Options where it is to have a terminal."""
    variables: str
    """Option that precedes each variable; empty where all are inherited."""
    directory: str
    """Option that precedes the working directory; empty where there is none."""
    node: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The entry as remote_shell.py reads it, but for what is not the runtime's."""
        return dict(vars(self))


class Runtime(Protocol):
    """A container runtime."""

    @property
    def name(self) -> str:
        """The name that users choose it by."""

    @property
    def program(self) -> str:
        """Its path on the host."""

    def start(self, head: Head, node: Prepared) -> None:
        """Start a node, which runs when this returns; raises VicinalError."""

    def process(self, head: Head, node: str) -> int | None:
        """The node's first process as the head numbers it, if one was ever started."""

    def entry(self, node: Prepared, process: int) -> Entry:
        """How to run commands in a node that runs."""

    def remove(self, head: Head, node: str) -> None:
        """Kill a node, however far it was started, and drop what the runtime keeps of it."""
