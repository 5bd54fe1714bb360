"""How commands start a cluster's head, run commands in its namespaces, and end it.

    HeadProcess    a running head, lasting or ephemeral
    Head           a running lasting head
    HeadNodes      the common base class of both kinds of clusters

The clusters are in cluster.py (lasting) and ephemeral.py.
"""

import json
import os
import secrets
import shlex
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vicinal.base.daemon import Identity, NotReadyError, await_ready, end, last_lines, launch
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.head import (
    HOST_NETWORK,
    LASTING,
    OWN_NETWORK,
    READY_SECONDS,
    RECORD,
)
from vicinal.cluster.nodes.container.layout import NODE_MARK
from vicinal.cluster.nodes.container.namespaces import entering
from vicinal.cluster.nodes.container.state import read_json, write_json
from vicinal.cluster.nodes.job_nodes import JobPaths, Node, pid_namespace
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.cluster.nodes.network import find_tool

if TYPE_CHECKING:
    import psutil

HEAD_MODULE = "vicinal.cluster.nodes.container.head"

_IDENTIFIER = "identifier.json"
_STATE = "cluster.json"
_LOG = "log"
_COMMAND_SECONDS = 60.0
_END_SECONDS = 20.0
_CLEAR_SECONDS = 20.0
_KILL_SECONDS = 5.0
_KILL_PAUSE_SECONDS = 0.02
_POLL_SECONDS = 0.005


def nsenter() -> str:
    """Return the path of nsenter, which enters a head. Raises VicinalError if it is missing."""
    tool = find_tool("nsenter")
    if tool is None:
        raise VicinalError("the tool nsenter was not found", "install util-linux")
    return tool


@dataclass(frozen=True)
class HeadProcess:
    """A running head, with the facts that commands need to enter it."""

    process: int
    user_namespace: bool
    network: bool
    """Whether nodes have networks of their own."""
    limitations: tuple[str, ...]
    """What the cluster lacks on this host, as phrases."""

    def path(self, path: str) -> Path:
        """Return the path by which this process reaches a file of the head."""
        return Path(f"/proc/{self.process}/root{path}")

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in the head's namespaces, in /."""
        options = entering(self.process, network=self.network, user_namespace=self.user_namespace)
        return [nsenter(), *options, "--", *command]

    def run(
        self,
        command: Sequence[str],
        *,
        environment: dict[str, str] | None = None,
        timeout: float = _COMMAND_SECONDS,
    ) -> str:
        """Run a command in the head's namespaces, and return its standard output.

        `environment` is added to tool_environment(); `timeout` is in seconds. Raises VicinalError
        if the command fails, with the first line of its errors, or if it takes too long.
        """
        try:
            done = subprocess.run(
                self.command(command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                env=tool_environment() | (environment or {}),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise VicinalError(
                f"`{_shown(command)}` took longer than {timeout:g} s",
                "try again when the host is less busy",
            ) from None
        output = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            said = (done.stderr.decode(errors="replace").strip() or output.strip()).splitlines()
            raise VicinalError(
                f"`{_shown(command)}` failed with status {done.returncode}",
                said[0] if said else "run it by hand",
            )
        return output


@dataclass(frozen=True)
class Head(HeadProcess):
    """A running lasting head."""

    directory: Path
    """The cluster's state directory on the host."""
    identifier: str

    @classmethod
    def start(cls, directory: Path, lock: int, *, own_network: bool = True) -> Self:
        """Start the head of a new cluster, whose state directory exists.

        `lock` is the descriptor of base_locked(). Without `own_network` the nodes share the host's
        network. Raises VicinalError if the head cannot be started; files in the directory remain
        then.
        """
        identifier = secrets.token_hex(4)
        write_json(directory / _IDENTIFIER, {"identifier": identifier})
        network = OWN_NETWORK if own_network else HOST_NETWORK
        log = directory / _LOG
        alive = launch(
            HEAD_MODULE,
            [LASTING, str(directory.absolute()), identifier, str(lock), network],
            log,
            inherited=[lock],
            environment={NODE_MARK: f"{identifier}/"},
        )
        answer = await_head(alive, lambda: "".join(last_lines(log)) or "try again")
        write_json(directory / _STATE, answer)
        found = cls.find(directory)
        if found is None:
            raise VicinalError("the cluster's head ended immediately", "see what killed it")
        return found

    @classmethod
    def find(cls, directory: Path) -> Self | None:
        """Return the head of the cluster with this state directory; None if it does not run."""
        record, state = read_json(directory / RECORD), read_json(directory / _STATE)
        if record is None or state is None or _process(record) is None:
            return None
        return cls(
            directory=directory,
            identifier=record["identifier"],
            process=record["process"],
            user_namespace=record["user_namespace"],
            network=state["network"],
            limitations=tuple(state["limitations"]),
        )


class HeadNodes(ABC):
    """The methods of JobNodes for nodes whose head is entered by nsenter."""

    _prepare = ""
    """Shell text that runs before each command at the head, in the command's directory."""

    @property
    @abstractmethod
    def head(self) -> HeadProcess:
        """The head. Raises VicinalError if there is none."""

    @property
    @abstractmethod
    def nodes(self) -> list[Node]:
        """The running nodes, in order."""

    @abstractmethod
    def _is_of_job(self, process: Path) -> bool:
        """Return whether a process (/proc/PID) belongs to a job of this object. Raises OSError."""

    @property
    def head_process(self) -> int:
        """The head's PID on this host. All processes of the cluster end with the head."""
        return self.head.process

    @property
    def network(self) -> bool:
        """Whether the nodes have networks of their own."""
        return self.head.network

    @property
    def job_paths(self) -> JobPaths:
        return JobPaths()

    @property
    def exchange(self) -> Path:
        return self.seen_from_host(EXCHANGE)

    def seen_from_host(self, path: str) -> Path:
        return self.head.path(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """Return the command line that runs `command` at the head, where launchers run.

        The head has the bridge's address, the host's files, and REMOTE_SHELL, by which it reaches
        each node. `directory` is the working directory, by default that of this process.
        """
        # nsenter changes to the root directory, and only newer versions have the option --wdns.
        change = f'cd "$0" && {self._prepare}exec "$@"'
        return self.head.command(["/bin/sh", "-c", change, str(directory or Path.cwd()), *command])

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill a process that head_command() started, if it has not ended, and reap it."""
        deadline = time.monotonic() + _KILL_SECONDS
        while running.poll() is None and time.monotonic() < deadline:
            # Kill the command itself, so that nsenter reaps it. If nsenter ended first, init would
            # have to reap the command, and the init of a container may not do that.
            self.signal_command(running, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                running.wait(_KILL_PAUSE_SECONDS)
        running.kill()
        running.wait()

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a process that head_command() started, which is a child of nsenter."""
        import psutil

        with suppress(psutil.Error):
            for process in psutil.Process(running.pid).children():
                process.send_signal(number)

    def processes(self, node: str | None = None) -> "list[psutil.Process]":
        """Return the processes of this object's jobs in one node or in all; PIDs are the host's."""
        import psutil

        wanted = {each.pid_namespace for each in self.nodes if node in (None, each.name)}
        found = []
        for process in psutil.process_iter():
            with suppress(OSError):  # the process may end at this moment
                proc_directory = Path(f"/proc/{process.pid}")
                if pid_namespace(proc_directory) in wanted and self._is_of_job(proc_directory):
                    found.append(process)
        return found

    def clear(self) -> None:
        """Kill all processes of this object's jobs, so that no process disturbs the next job."""
        deadline = time.monotonic() + _CLEAR_SECONDS
        while self._kill_left() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _kill_left(self) -> bool:
        """Kill all processes of this object's jobs; returns False if there were none."""
        left = False
        try:
            # The head's /proc lists few processes; the host's /proc may list thousands.
            listed = list(self.head.path("/proc").iterdir())
        except OSError:  # the head has ended, and with it all processes of the cluster
            return False
        for process in listed:
            with suppress(OSError):  # the process may end at this moment
                if not process.name.isdigit():
                    continue
                # Opened before the check, so that another process with the same PID is not killed.
                descriptor = os.open(process, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    if self._is_of_job(process):
                        left = True
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)
        return left


def await_head(alive: int, remedy: Callable[[], str]) -> dict[str, Any]:
    """Wait until a started head is up, and return the facts that it reports.

    `alive` is the descriptor on which the head reports; it is closed. Raises VicinalError with the
    head's error, or with the text of `remedy` if the head reports nothing.
    """
    try:
        answer: dict[str, Any] = json.loads(await_ready(alive, READY_SECONDS + 15))
    except NotReadyError as error:
        raise VicinalError(f"the cluster's head {error}", remedy()) from error
    if "error" in answer:
        raise VicinalError(answer["error"], answer["remedy"])
    return answer


def tool_environment() -> dict[str, str]:
    """Return the environment of tools and container runtimes.

    PATH includes /usr/sbin and /sbin, which are not in the PATH of ordinary users.
    """
    return {"PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin", "LC_ALL": "C"}


def identifier_of(directory: Path) -> str | None:
    """Return the identifier of the cluster with this state directory; its head may have ended."""
    return (read_json(directory / _IDENTIFIER) or {}).get("identifier")


def end_head(directory: Path) -> None:
    """End the head, even during its start, and with it all processes of the cluster.

    Raises VicinalError if the head does not end.
    """
    record = read_json(directory / RECORD)
    if record is not None:
        remedy = "see what it waits for in the kernel: /proc/PID/stack"
        end(lambda: _process(record), "the cluster's head", _END_SECONDS, remedy=remedy)


def kill_marked(mark: str) -> None:
    """Kill the processes whose variable NODE_MARK begins with `mark`, and wait for their end.

    They are the first processes of nodes, and runtimes that a killed command started. Raises
    VicinalError if a process does not end.
    """
    import psutil

    deadline = time.monotonic() + _END_SECONDS
    while marked := list(_marked(mark)):
        if time.monotonic() > deadline:
            raise VicinalError(
                f"process {marked[0].pid} of the cluster does not end",
                "see what it waits for in the kernel: /proc/PID/stack",
            )
        for process in marked:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_SECONDS)


def _marked(mark: str) -> "list[psutil.Process]":
    import psutil

    wanted = f"{NODE_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, psutil.Error):  # the process ends now, or is another user's
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(variable.startswith(wanted) for variable in variables):
                    found.append(psutil.Process(int(entry.name)))
    return found


def _process(record: dict[str, Any]) -> int | None:
    return Identity(record["process"], record["started"], record["boot"]).process


def _shown(command: Sequence[str]) -> str:
    line = shlex.join(command)
    return line if len(line) <= 60 else f"{line[:57]}..."
