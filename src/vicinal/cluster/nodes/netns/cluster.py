"""A native cluster: isolated nodes on this host, made of Linux namespaces.

    with NativeCluster(nodes=2) as cluster:
        print(cluster.run_in("node0", ["hostname"]))

Each node has its own host name, processes, System V and POSIX shared memory (/dev/shm),
network interface and address. What they have in common is the host's other files, and one
directory for regions. Root is not needed where the kernel allows user namespaces. What the
cluster had to do without stands in `limitations`.
"""

import json
import os
import select
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from vicinal.base.daemon import module_command, module_environment
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.head_setup import entering
from vicinal.cluster.nodes.job_nodes import (
    EnteredHead,
    Node,
    pid_namespace,
)
from vicinal.cluster.nodes.layout import (
    MOST_NODES,
    REMOTE_SHELL,
    Request,
    Started,
    node_address,
    node_name,
)
from vicinal.cluster.nodes.network import find_tool

KEEPER_MODULE = "vicinal.cluster.nodes.netns.keeper"

_START_SECONDS = 60.0
_CLEAR_SECONDS = 30.0
_STOP_SECONDS = 10.0


class NativeCluster(EnteredHead):
    """Isolated nodes node0, node1, ... on this host, for as long as it is open.

    `network=False` leaves the nodes in the host's network. `regions` are files of the host
    to show in the exchange under the given names. Open it in a thread that lives at least
    as long: the kernel ends the cluster with the thread that started it.
    Raises VicinalError where namespaces cannot be had.
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
                f"a cluster of {nodes} nodes cannot be made", f"ask for 1 to {MOST_NODES}"
            )
        if find_tool("nsenter") is None:
            raise VicinalError("the tool nsenter was not found", "install util-linux")
        self._request = Request(
            nodes=nodes, network=network, regions=[(str(path), name) for path, name in regions]
        )
        self._keeper: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._received = b""
        self._ended: list[str] = []
        self._started: Started | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the nodes; they are up when this returns."""
        try:
            self._start_keeper()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process of the cluster; all else goes with them. May be called again."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        # The cluster's init ends at the end of its input, and the kernel ends all else.
        with suppress(BrokenPipeError):
            keeper.stdin.close()
        try:
            keeper.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        keeper.stdout.close()

    @property
    def nodes(self) -> list[Node]:
        started = self._state
        return [
            Node(
                name=node_name(number),
                address=node_address(number, network=started.network),
                pid_namespace=namespace,
            )
            for number, namespace in enumerate(started.pid_namespaces)
        ]

    @property
    def limitations(self) -> list[str]:
        """What the cluster had to do without, as phrases; empty on most systems."""
        return list(self._state.limitations)

    @property
    def network(self) -> bool:
        """Whether the nodes have a network of their own."""
        return self._state.network

    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""
        self._check_open()
        return Path(f"/proc/{self._init}/root{path}")

    @property
    def init_process(self) -> int:
        """Process id of the cluster's first process, which everything in it dies with."""
        self._check_open()
        return self._init

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """The command line that runs `command` at the head, where launchers run.

        The head has the bridge's address, and from it REMOTE_SHELL reaches each node.
        `directory` is the working directory, by default this process's.
        """
        started = self._state
        options = entering(
            self._init, network=started.network, user_namespace=started.user_namespace
        )
        # nsenter leaves us in the root directory, and only newer ones have --wdns.
        change = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(directory or Path.cwd())]
        tool = find_tool("nsenter") or "nsenter"
        return [tool, *options, "--", *change, *command]

    def run_in(self, node: str, command: Sequence[str], *, timeout: float = 60.0) -> str:
        """Run a command in a node (or in "head") and return its standard output.

        Raises VicinalError when it fails or takes longer than `timeout` seconds.
        """
        inside = list(command)
        if node != "head":
            inside = [REMOTE_SHELL, node, shlex.join(command)]
        try:
            done = subprocess.run(
                self.head_command(inside, Path("/")),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            raise VicinalError(
                f"`{shlex.join(command)}` in {node} took longer than {timeout:g} s",
                "allow it more time",
            ) from error
        except subprocess.CalledProcessError as error:
            raise VicinalError(
                f"`{shlex.join(command)}` failed in {node} with status {error.returncode}",
                error.stderr.strip() or "run it by hand",
            ) from error
        return done.stdout

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """The processes in one node or in all, their inits left out; host process ids."""
        wanted = {n.pid_namespace for n in self.nodes if node in (None, n.name)}
        found = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):  # it may end just now
                if pid_namespace(process) in wanted and not _is_node_init(process):
                    found.append(process)
        return found

    def clear(self) -> None:
        """Kill whatever runs in the nodes, so that the next job finds them as new."""
        self._send(b"clear")
        while True:
            if "cleared" in self._receive(_CLEAR_SECONDS):
                return

    def ended_nodes(self) -> list[str]:
        """Names of nodes that ended by themselves; they do not come back."""
        while self._poll():
            self._receive(0)
        return list(self._ended)

    @property
    def _state(self) -> Started:
        self._check_open()
        assert self._started is not None
        return self._started

    def _check_open(self) -> None:
        if self._keeper is None:
            raise VicinalError("the cluster is not open", "use it as a context manager")

    def _start_keeper(self) -> None:
        request = json.dumps(self._request.to_dict())
        self._keeper = subprocess.Popen(
            module_command(KEEPER_MODULE, str(os.getpid()), request),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=module_environment(),
            start_new_session=True,  # Ctrl-C is for the manager, which closes in order
        )
        self._init = self._receive(_START_SECONDS)["init"]
        self._started = Started(**self._receive(_START_SECONDS)["started"])

    def _send(self, request: bytes) -> None:
        self._check_open()
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(request + b"\n")
            self._keeper.stdin.flush()
        except BrokenPipeError:
            raise _gone() from None

    def _poll(self, timeout: float = 0) -> bool:
        self._check_open()
        if b"\n" in self._received:
            return True
        assert self._keeper is not None
        assert self._keeper.stdout is not None
        return bool(select.select([self._keeper.stdout.fileno()], [], [], timeout)[0])

    def _receive(self, timeout: float) -> dict[str, Any]:
        """The keeper's next message; raises VicinalError for its error or its silence."""
        assert self._keeper is not None
        assert self._keeper.stdout is not None
        while b"\n" not in self._received:
            if not self._poll(timeout):
                raise VicinalError(
                    f"the nodes did not answer within {timeout:g} s",
                    "try again on a less busy machine",
                )
            more = os.read(self._keeper.stdout.fileno(), 65536)
            if not more:
                raise _gone()
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise VicinalError(message["error"], message["remedy"])
        if "ended" in message:
            self._ended.append(node_name(message["ended"]))
        return message


def _gone() -> VicinalError:
    return VicinalError("the cluster's keeper was killed", "start the cluster again")


def _is_node_init(process: psutil.Process) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return numbers.split()[-1] == "1"
