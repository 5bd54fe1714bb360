"""The head of a cluster as a command finds it: start it, reach into it, end it."""

import json
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vicinal.base.daemon import Identity, NotReadyError, await_ready, end, last_lines, launch
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.head import HOST_NETWORK, OWN_NETWORK, READY_SECONDS, RECORD
from vicinal.cluster.nodes.container.layout import NODE_MARK
from vicinal.cluster.nodes.container.state import read_json, write_json
from vicinal.cluster.nodes.head_setup import entering
from vicinal.cluster.nodes.network import find_tool

if TYPE_CHECKING:
    import psutil

_MODULE = "vicinal.cluster.nodes.container.head"
_IDENTIFIER = "identifier.json"
_STATE = "cluster.json"
_LOG = "log"
_COMMAND_SECONDS = 60.0
_END_SECONDS = 20.0
_POLL_SECONDS = 0.005


def nsenter() -> str:
    """The tool by which commands get into a head. Raises VicinalError where it is missing."""
    tool = find_tool("nsenter")
    if tool is None:
        raise VicinalError("the tool nsenter was not found", "install util-linux")
    return tool


@dataclass(frozen=True)
class Head:
    """A head that runs."""

    directory: Path
    """The cluster's state directory on the host."""
    identifier: str
    process: int
    user_namespace: bool
    network: bool
    """Whether nodes have networks of their own."""
    limitations: tuple[str, ...]

    @classmethod
    def start(cls, directory: Path, lock: int, *, own_network: bool = True) -> Self:
        """Start the head of a new cluster in its state directory, which is there.

        Without `own_network` the nodes share the host's.

        Raises VicinalError where it cannot be had; what is in the directory stays.
        """
        identifier = secrets.token_hex(4)
        write_json(directory / _IDENTIFIER, {"identifier": identifier})
        network = OWN_NETWORK if own_network else HOST_NETWORK
        log = directory / _LOG
        alive = launch(
            _MODULE,
            [str(directory.absolute()), identifier, str(lock), network],
            log,
            inherited=[lock],
            environment={NODE_MARK: f"{identifier}/"},
        )
        try:
            answer = json.loads(await_ready(alive, READY_SECONDS + 15))
        except NotReadyError as error:
            raise VicinalError(
                f"the cluster's head {error}", "".join(last_lines(log)) or "try again"
            ) from error
        if "error" in answer:
            raise VicinalError(answer["error"], answer["remedy"])
        write_json(directory / _STATE, answer)
        found = cls.find(directory)
        if found is None:
            raise VicinalError("the cluster's head ended at once", "see what killed it")
        return found

    @classmethod
    def find(cls, directory: Path) -> Self | None:
        """The head of the cluster with this state directory; None where none runs."""
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

    def path(self, path: str) -> Path:
        """A file of the head's, as this process can reach it."""
        return Path(f"/proc/{self.process}/root{path}")

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` in the head's namespaces, in /."""
        options = entering(self.process, network=self.network, user_namespace=self.user_namespace)
        return [nsenter(), *options, "--", *command]

    def run(
        self,
        command: Sequence[str],
        *,
        environment: dict[str, str] | None = None,
        timeout: float = _COMMAND_SECONDS,
    ) -> str:
        """Run a command in the head and return its output.

        Raises VicinalError with what it said last where it fails or is late.
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
                f"`{_shown(command)}` took longer than {timeout:g} s", "try again when less is busy"
            ) from None
        output = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            said = (done.stderr.decode(errors="replace").strip() or output.strip()).splitlines()
            raise VicinalError(
                f"`{_shown(command)}` failed with status {done.returncode}",
                said[0] if said else "run it by hand",
            )
        return output


def tool_environment() -> dict[str, str]:
    """The environment of tools and runtimes, which may lie where ordinary users do not search."""
    return {"PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin", "LC_ALL": "C"}


def identifier_of(directory: Path) -> str | None:
    """The identifier of the cluster with this state directory, whether or not its head runs."""
    return (read_json(directory / _IDENTIFIER) or {}).get("identifier")


def end_head(directory: Path) -> None:
    """End the head, however far it came, and with it all processes of the cluster.

    Raises VicinalError where it does not end.
    """
    record = read_json(directory / RECORD)
    if record is not None:
        remedy = "see what it waits for in the kernel: /proc/PID/stack"
        end(lambda: _process(record), "the cluster's head", _END_SECONDS, remedy=remedy)


def kill_marked(mark: str) -> None:
    """Kill the processes whose mark begins so, and wait until they are gone.

    They are runtimes that a killed command had started, and first processes of nodes.
    Raises VicinalError where one does not end.
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
            with suppress(OSError, psutil.Error):  # it may end just now, or be another user's
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(variable.startswith(wanted) for variable in variables):
                    found.append(psutil.Process(int(entry.name)))
    return found


def _process(record: dict[str, Any]) -> int | None:
    return Identity(record["process"], record["started"], record["boot"]).process


def _shown(command: Sequence[str]) -> str:
    line = shlex.join(command)
    return line if len(line) <= 60 else f"{line[:57]}..."
