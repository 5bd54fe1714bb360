"""Namespaces by Vicinal's own code: setup of heads, and the nodes of an ephemeral cluster.

A head starts a node by an intermediate process, because a new PID namespace takes effect only for
children of the process that unshares:

    head ── a process that unshares ── the node's first process (pid 1), which the head inherits

Heads load this module at their start, so it imports few modules.
"""

import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.layout import NODE_DIRECTORY, node_name
from vicinal.cluster.nodes.network import configure_node, connect
from vicinal.host import namespaces as kernel

NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID
"""The new namespaces of each head and of each node."""

PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV
"""Flags of the private mounts of heads and nodes."""


class StartedNode(NamedTuple):
    """A started node, as the head knows it."""

    number: int
    process: int
    """PID of its first process, in the PID namespace of the head."""
    process_in_proc: str
    """The name of the same process in the head's /proc, which may be the host's /proc."""
    pid_namespace: str
    """PID namespace of the node, in the format of /proc/PID/ns/pid."""


def entering(process: int | str, *, network: bool, user_namespace: bool = False) -> list[str]:
    """Return the options of nsenter that enter the namespaces of a process in a head or node."""
    options = ["-t", str(process), "-m", "-u", "-i", "-p"]
    if network:
        options.append("-n")
    if user_namespace:
        options += ["-U", "--preserve-credentials"]
    return options


def enter_namespaces(more: int = 0) -> bool:
    """Enter new NAMESPACES and `more`; returns whether that created a user namespace.

    Raises VicinalError if the kernel refuses.
    """
    try:
        return kernel.enter_namespaces(NAMESPACES | more)
    except OSError as error:
        reason = error.strerror.lower() if error.strerror else str(error)
        raise VicinalError(
            f"this system allows no new namespaces ({reason})",
            "run as root, or allow unprivileged user namespaces "
            "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone; "
            "in a container: give it CAP_SYS_ADMIN)",
        ) from error


def mount_proc() -> None:
    """Mount the /proc of the caller's PID namespace."""
    kernel.mount("proc", "/proc", "proc", PLAIN | kernel.MS_NOEXEC)


def mount_shared_memory() -> None:
    """Mount a private /dev/shm for the caller."""
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", PLAIN, "mode=1777")


def leave_streams() -> None:
    """Replace the caller's standard streams, which it inherited, by /dev/null."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def stay() -> NoReturn:
    """Keep the caller's namespaces, as their first process; the function never returns."""
    # The kernel reaps children that end, such as monitors of runtimes and processes that jobs left.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


def describe(error: OSError) -> str:
    """Return the text of an error, with the path if there is one."""
    prefix = f"{error.filename}: " if error.filename else ""
    return f"{prefix}{error.strerror or error}"


def start_node(number: int, *, network: bool) -> StartedNode:
    """Start a node in namespaces of its own; the node is set up when the function returns.

    Raises OSError with the node's name.
    """
    ours, theirs = socket.socketpair()
    between = os.fork()
    if between == 0:
        ours.close()
        _fork_node(number, network, theirs)
    theirs.close()
    os.waitpid(between, 0)
    with ours, ours.makefile("rb", buffering=0) as answers:

        def answer() -> dict[str, Any]:
            said: dict[str, Any] = json.loads(answers.readline() or '{"error": "it was killed"}')
            if "error" in said:
                raise OSError(0, said["error"], node_name(number))
            return said

        process = answer()["process"]
        if network:
            connect(number, process)
        ours.sendall(b"\n")
        return StartedNode(number, process, **answer())


def _fork_node(number: int, network: bool, head: socket.socket) -> NoReturn:
    try:
        kernel.unshare(NAMESPACES | (kernel.CLONE_NEWNET if network else 0))
        process = os.fork()
    except OSError as error:
        _say(head, error=describe(error))
        os._exit(1)
    if process == 0:
        _run_node(number, network, head)
    _say(head, process=process)
    os._exit(0)


def _run_node(number: int, network: bool, head: socket.socket) -> NoReturn:
    """Process 1 of a node."""
    leave_streams()
    head.recv(1)  # returns when the head has created the node's interface
    try:
        _say(head, **_set_up(number, network))
    except OSError as error:
        _say(head, error=describe(error))
    head.close()
    stay()


def _set_up(number: int, network: bool) -> dict[str, str]:
    # Read before the node mounts its own /proc, because commands need the PID in the head's /proc.
    process = str(Path("/proc/self").readlink())
    socket.sethostname(node_name(number))
    with suppress(OSError):  # the head has reported this limitation
        mount_proc()
    mount_shared_memory()
    kernel.mount("tmpfs", NODE_DIRECTORY, "tmpfs", PLAIN, "mode=755")
    if network:
        configure_node(number)
    namespace = str(Path("/proc/self/ns/pid").readlink())
    return {"process_in_proc": process, "pid_namespace": namespace}


def _say(head: socket.socket, **message: Any) -> None:
    head.sendall(json.dumps(message).encode() + b"\n")
