"""One node of a native cluster: namespaces of its own, and a first process that reaps.

It runs in the cluster's keeper: start_node() forks, and the handle stays with the caller.
"""

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from vicinal.cluster.nodes.layout import NODE_DIRECTORY, node_name
from vicinal.cluster.nodes.netns.network import configure_node
from vicinal.host import namespaces as kernel

_CLEAR_SECONDS = 20.0
_CLEAR_PAUSE_SECONDS = 0.002


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
        flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID
        try:
            kernel.unshare(flags | (kernel.CLONE_NEWNET if network else 0))
            init = os.fork()
        except OSError as error:
            theirs.sendall(json.dumps({"error": error.strerror}).encode() + b"\n")
            os._exit(1)
        if init == 0:
            ours.close()
            for other in others:
                other.close()
            _run_init(number, network, theirs)
        theirs.sendall(json.dumps({"process": init}).encode() + b"\n")
        os._exit(0)
    theirs.close()
    os.waitpid(helper, 0)
    with ours.makefile("rb", buffering=0) as answers:
        answer = json.loads(answers.readline())
    if "error" in answer:
        raise OSError(0, answer["error"], node_name(number))
    return NodeHandle(number, answer["process"], ours)


def _run_init(number: int, network: bool, control: socket.socket) -> NoReturn:
    """Process 1 of a node."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
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
            safe = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
            kernel.mount("proc", "/proc", "proc", safe)
        plain = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", "/dev/shm", "tmpfs", plain, "mode=1777")
        kernel.mount("tmpfs", NODE_DIRECTORY, "tmpfs", plain, "mode=755")
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
