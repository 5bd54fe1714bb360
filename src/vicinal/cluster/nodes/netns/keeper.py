"""The keeper: the process tree that a native cluster lives in, and dies with.

The manager (NativeCluster) starts this module as a program. It enters new namespaces,
without root a user namespace first, and forks the init process of the cluster's PID
namespace, which forks one init process a node, each in namespaces of its own:

    manager ── keeper ── cluster init (pid 1) ─┬─ node0 init (pid 1)
                                               └─ node1 init (pid 1)

Nothing has to be cleaned up by anybody: when the manager ends, however it ends, the kernel
kills the keeper (parent death signal), with it the cluster's init, with that every process
in its PID namespace, and the mounts, interfaces and files of namespaces go when they are
empty. A node's init reaps its children; the cluster's init keeps a handle of each node.

Requests come as lines of JSON on stdin, answers go as lines of JSON to stdout.
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.head_setup import (
    NAMESPACES,
    NO_OWN_NETWORK,
    PLAIN,
    enter_namespaces,
    entering,
    leave_streams,
    mount_directories,
    mount_proc,
    mount_shared_memory,
    not_set_up,
    own_network,
    write_executables,
)
from vicinal.cluster.nodes.layout import (
    EXCHANGE,
    HEAD,
    NODE_DIRECTORY,
    RANK,
    RANK_TEXT,
    REMOTE_SHELL,
    Request,
    Started,
    head_address,
    node_address,
    node_name,
)
from vicinal.cluster.nodes.network import (
    configure_node,
    connect,
    find_tool,
    host_names,
)
from vicinal.host import namespaces as kernel

_CLEAR_SECONDS = 20.0
_CLEAR_PAUSE_SECONDS = 0.002
_OWN_PROC = "a /proc of its own"

_REMOTE_SHELL_TEXT = """\
#!/bin/sh
# Stands in for ssh: runs a command line in a node of this cluster.
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
if ! read -r pid < {exchange}/nodes/"$host"; then
    echo "vicinal: error: there is no node $host in this cluster" >&2
    exit 1
fi
exec {nsenter} {options} -- /bin/sh -c "$*"
"""


def main() -> None:
    """Run the keeper: argument 1 is the manager's process id, argument 2 the request."""
    manager = int(sys.argv[1])
    values = json.loads(sys.argv[2])
    request = Request(
        nodes=values["nodes"],
        network=values["network"],
        regions=[(path, name) for path, name in values["regions"]],
    )
    kernel.die_with_parent()
    if os.getppid() != manager:
        sys.exit(1)
    try:
        user_namespace = enter_namespaces(hint="; in a container: give it CAP_SYS_ADMIN")
    except VicinalError as error:
        _send(error=error.message, remedy=error.remedy)
        sys.exit(1)
    # The parent death signal is lost where credentials change.
    kernel.die_with_parent()
    if os.getppid() != manager:
        sys.exit(1)
    init = os.fork()
    if init == 0:
        kernel.die_with_parent()
        _run_init(request, user_namespace)
    _send(init=init)
    for stream in (0, 1, 2):
        os.close(stream)
    _, status = os.waitpid(init, 0)
    os._exit(0 if status == 0 else 1)


def _send(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _run_init(request: Request, user_namespace: bool) -> None:
    """Process 1 of the cluster: set it up, then answer requests until the manager is gone."""
    try:
        init = Init(request, user_namespace)
    except OSError as error:
        trouble = not_set_up("the nodes", error)
        _send(error=trouble.message, remedy=trouble.remedy)
        os._exit(1)
    _send(started=init.started.to_dict())
    init.serve()
    os._exit(0)


class Init:
    """The first process of the cluster's PID namespace."""

    def __init__(self, request: Request, user_namespace: bool) -> None:
        self._limitations: list[str] = []
        socket.sethostname(HEAD)
        _make_mounts(request, self._limitations)
        network = self._make_network(request.network)
        _name_hosts(request.nodes, network=network)
        self._nodes: list[NodeHandle] = []
        for number in range(request.nodes):
            self._nodes.append(start_node(number, network, self._nodes))
        if network:
            for node in self._nodes:
                connect(node.number, node.process)
        for node in self._nodes:
            node.complete()
        _write_scripts(self._nodes, network)
        self.started = Started(
            user_namespace=user_namespace,
            network=network,
            limitations=self._limitations,
            pid_namespaces=[node.pid_namespace for node in self._nodes],
        )

    def _make_network(self, wanted: bool) -> bool:
        if not wanted:
            self._limitations.append(f"{NO_OWN_NETWORK} (as asked)")
            return False
        return own_network(self._limitations)

    def serve(self) -> None:
        """Reap, and do what the manager asks, until it closes its end or is gone."""
        signal.signal(signal.SIGCHLD, self._reap)
        self._reap(signal.SIGCHLD, None)
        with os.fdopen(0, "rb", buffering=0, closefd=False) as requests:
            for line in requests:
                if line.strip() == b"clear":
                    for node in self._nodes:
                        node.clear()
                    _send(cleared=True)

    def _reap(self, _signal: int, _frame: FrameType | None) -> None:
        with suppress(ChildProcessError):
            while True:
                process, _ = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                for number, node in enumerate(self._nodes):
                    if node.process == process:
                        node.alive = False
                        _send(ended=number)


def _make_mounts(request: Request, limitations: list[str]) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    try:
        mount_proc()
    except OSError as error:
        limitations.append(f"{_OWN_PROC} ({error.strerror})")
    sources = [(os.open(path, os.O_PATH), name) for path, name in request.regions]
    mount_directories()
    for source, name in sources:
        target = f"{EXCHANGE}/{name}"
        Path(target).touch(mode=0o600)
        # By descriptor, since the tmpfs may just have hidden its path.
        kernel.mount(f"/proc/self/fd/{source}", target, flags=kernel.MS_BIND)
        os.close(source)


def _name_hosts(nodes: int, *, network: bool) -> None:
    hosts = Path(EXCHANGE, "hosts")
    names = {node_name(each): node_address(each, network=network) for each in range(nodes)}
    first = ["127.0.0.1 localhost"]
    with suppress(FileNotFoundError):
        if not network:
            first = Path("/etc/hosts").read_text().splitlines()
    hosts.write_text(host_names(head_address(network=network), names, first))
    with suppress(FileNotFoundError):
        kernel.mount(str(hosts), "/etc/hosts", flags=kernel.MS_BIND)


def _write_scripts(nodes: list["NodeHandle"], network: bool) -> None:
    directory = Path(EXCHANGE, "nodes")
    directory.mkdir()
    for number, node in enumerate(nodes):
        (directory / node_name(number)).write_text(f"{node.process_in_proc}\n")
    remote_shell = _REMOTE_SHELL_TEXT.format(
        exchange=EXCHANGE,
        nsenter=find_tool("nsenter"),
        options=" ".join(entering('"$pid"', network=network)),
    )
    write_executables({REMOTE_SHELL: remote_shell, RANK: RANK_TEXT})


class NodeHandle:
    """The cluster init's side of a node."""

    def __init__(self, number: int, process: int, control: socket.socket) -> None:
        self.number = number
        self.process = process
        """Process id of the node's init in the cluster's PID namespace."""
        self.process_in_proc = ""
        """The same process as the cluster's /proc calls it."""
        self.pid_namespace = ""
        self.alive = True
        self._control = control
        self._answers = control.makefile("rb")

    def complete(self) -> None:
        """Have the node set itself up; raises OSError with its reason where it fails."""
        answer = self._ask("configure")
        if "error" in answer:
            raise OSError(0, answer["error"], node_name(self.number))
        self.process_in_proc = answer["process"]
        self.pid_namespace = answer["pid_namespace"]

    def clear(self) -> None:
        """Kill every process in the node but its init, and wait until they are gone."""
        if self.alive:
            with suppress(OSError):
                self._ask("clear")

    def close(self) -> None:
        """Give up the connection; for processes that inherited it and must not hold it."""
        self._answers.close()
        self._control.close()

    def _ask(self, request: str) -> dict[str, Any]:
        self._control.sendall(request.encode() + b"\n")
        answer = self._answers.readline()
        if not answer:
            raise OSError(0, "ended unexpectedly", node_name(self.number))
        result: dict[str, Any] = json.loads(answer)
        return result


def start_node(number: int, network: bool, others: list[NodeHandle]) -> NodeHandle:
    """Fork the init process of a node into namespaces of its own. It waits for complete()."""
    ours, theirs = socket.socketpair()
    helper = os.fork()
    if helper == 0:
        # A PID namespace takes effect on the next child only.
        try:
            kernel.unshare(NAMESPACES | (kernel.CLONE_NEWNET if network else 0))
            init = os.fork()
        except OSError as error:
            theirs.sendall(json.dumps({"error": error.strerror}).encode() + b"\n")
            os._exit(1)
        if init == 0:
            ours.close()
            for other in others:
                other.close()
            _run_node_init(number, network, theirs)
        theirs.sendall(json.dumps({"process": init}).encode() + b"\n")
        os._exit(0)
    theirs.close()
    os.waitpid(helper, 0)
    with ours.makefile("rb", buffering=0) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise OSError(0, answer["error"], node_name(number))
    return NodeHandle(number, answer["process"], ours)


def _run_node_init(number: int, network: bool, control: socket.socket) -> NoReturn:
    """Process 1 of a node."""
    leave_streams()
    signal.signal(signal.SIGCHLD, _reap)
    with control.makefile("rb", buffering=0) as requests:
        for line in requests:
            answer: dict[str, str] = {}
            if line.strip() == b"configure":
                answer = _configure(number, network)
            elif line.strip() == b"clear":
                _clear()
            control.sendall(json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _configure(number: int, network: bool) -> dict[str, str]:
    # Before a new /proc: what the outer one calls us is what others enter us by.
    process = str(Path("/proc/self").readlink())
    try:
        socket.sethostname(node_name(number))
        with suppress(OSError):  # the keeper has told that it cannot be had
            mount_proc()
        mount_shared_memory()
        kernel.mount("tmpfs", NODE_DIRECTORY, "tmpfs", PLAIN, "mode=755")
        if network:
            configure_node(number)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return {"error": f"{place}{error.strerror or error}"}
    return {"process": process, "pid_namespace": str(Path("/proc/self/ns/pid").readlink())}


def _reap(_signal: int, _frame: FrameType | None) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _clear() -> None:
    deadline = time.monotonic() + _CLEAR_SECONDS
    while time.monotonic() < deadline:
        try:
            os.kill(-1, signal.SIGKILL)  # all of this PID namespace but ourselves
        except ProcessLookupError:
            return
        _reap(signal.SIGCHLD, None)
        time.sleep(_CLEAR_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
