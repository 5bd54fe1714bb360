"""A cluster that ends with the command: isolated nodes on this host, made of Linux namespaces.

    with EphemeralCluster(nodes=2) as cluster:
        print(cluster.run_in("node0", ["hostname"]))

Each node has its own host name, processes, System V and POSIX shared memory (/dev/shm),
network interface and address. The nodes share the host's other files, and one directory for
regions. Root is not needed if the kernel allows user namespaces. `limitations` says what the
cluster lacks on this host. The head starts the nodes by Vicinal's own code (namespaces.py), which
needs no container runtime and no files of the host.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from vicinal.base.daemon import module_command, module_environment
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.head import EPHEMERAL
from vicinal.cluster.nodes.container.head_process import (
    HEAD_MODULE,
    HeadNodes,
    HeadProcess,
    await_head,
    nsenter,
)
from vicinal.cluster.nodes.job_nodes import JobPaths, Node, pid_namespace
from vicinal.cluster.nodes.layout import (
    ENTRIES,
    HEAD,
    MOST_NODES,
    REMOTE_SHELL,
    head_address,
    node_address,
    node_name,
)

_STOP_SECONDS = 10.0


class EphemeralCluster(HeadNodes):
    """Isolated nodes node0, node1, ... on this host, for as long as the cluster is open.

    With `network=False` the nodes stay in the host's network. `regions` are files of the host, and
    their names in the exchange directory. Open the cluster in a thread that lives at least as long
    as the cluster, because the kernel ends the cluster with the thread that started it. Raises
    VicinalError if this host allows no namespaces.
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        network: bool = True,
        regions: Sequence[tuple[Path, str]] = (),
    ) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise VicinalError(
                f"a cluster of {nodes} nodes is impossible", f"ask for 1 to {MOST_NODES}"
            )
        nsenter()
        self._request = {
            "nodes": nodes,
            "network": network,
            "regions": [(str(path.absolute()), name) for path, name in regions],
        }
        self._parent: subprocess.Popen[bytes] | None = None
        self._head: HeadProcess | None = None
        self._nodes: list[Node] = []
        self._pid_namespaces: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the nodes; they run when this method returns. Raises VicinalError."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes, mounts and networks of the cluster. May be called again."""
        parent, self._parent, self._head = self._parent, None, None
        self._nodes = []
        if parent is None:
            return
        # The head ends at the end of its input, and the kernel ends the rest of the cluster.
        assert parent.stdin is not None
        parent.stdin.close()
        try:
            parent.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            parent.kill()
            parent.wait()

    @property
    def head(self) -> HeadProcess:
        if self._head is None:
            raise VicinalError("the cluster is not open", "use it as a context manager")
        return self._head

    @property
    def nodes(self) -> list[Node]:
        return list(self._nodes)

    @property
    def limitations(self) -> list[str]:
        """What the cluster lacks on this host, as phrases; empty on most systems."""
        return list(self.head.limitations)

    @property
    def job_paths(self) -> JobPaths:
        # On a host without /etc/hosts, there is nothing to mount the nodes' names over.
        return JobPaths(launcher=head_address(network=self.network))

    def run_in(self, node: str, command: Sequence[str], *, timeout: float = 60.0) -> str:
        """Run a command in a node, or in "head", and return its standard output.

        Raises VicinalError if the command fails or takes longer than `timeout` seconds.
        """
        inside = command if node == HEAD else [REMOTE_SHELL, node, shlex.join(command)]
        return self.head.run(inside, environment=dict(os.environ), timeout=timeout)

    def ended_nodes(self) -> list[str]:
        """Return the names of nodes that ended by themselves; such nodes do not start again."""
        try:
            running = os.listdir(self.head.path(ENTRIES))  # noqa: PTH208 - names are wanted
        except OSError as error:
            raise VicinalError(
                "the cluster's head was killed", "start the cluster again"
            ) from error
        return [node.name for node in self._nodes if node.name not in running]

    def _is_of_job(self, process: Path) -> bool:
        """Return True for all processes in the nodes, except the first process of each node."""
        if pid_namespace(process) not in self._pid_namespaces:
            return False
        lines = (process / "status").read_text().splitlines()
        return next(line for line in lines if line.startswith("NSpid:")).split()[-1] != "1"

    def _start(self) -> None:
        reader, writer = os.pipe()
        arguments = [EPHEMERAL, str(os.getpid()), json.dumps(self._request), str(writer)]
        try:
            self._parent = subprocess.Popen(
                module_command(HEAD_MODULE, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=module_environment(),
                pass_fds=(writer,),
                start_new_session=True,  # Ctrl-C is for the command, which then calls close()
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        answer: dict[str, Any] = await_head(reader, lambda: "try again on a less busy machine")
        network: bool = answer["network"]
        self._pid_namespaces = frozenset(answer["pid_namespaces"])
        self._head = HeadProcess(
            answer["process"], answer["user_namespace"], network, tuple(answer["limitations"])
        )
        self._nodes = [
            Node(node_name(number), node_address(number, network=network), namespace)
            for number, namespace in enumerate(answer["pid_namespaces"])
        ]
