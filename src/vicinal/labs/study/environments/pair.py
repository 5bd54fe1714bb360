"""Programs that are not MPI jobs: a server in the first node, and its client in the last node."""

import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vicinal.base.errors import TimeLimitError, VicinalError
from vicinal.cluster.hosts.guests import FarGuests
from vicinal.cluster.manager import node_command, open_nodes
from vicinal.cluster.nodes.container.layout import REGION
from vicinal.cluster.nodes.vm.guests import VmGuests
from vicinal.cluster.status import ClusterState
from vicinal.labs.study.environments.nodes import address_of, nodes_of
from vicinal.labs.study.file.model import Environment
from vicinal.labs.study.workloads.driver import Program
from vicinal.launch.cores import usable_cpus
from vicinal.launch.guest_job import CLEAR, placed
from vicinal.mpi.environment import MessagePath, mpi_environment

_MARK = "VICINAL_STUDY_LAUNCH"
"""Variable of all processes of one launch."""

_LISTEN_SECONDS = 10.0
"""Time for a server to listen; a server without a TCP port never does."""
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 60.0
_LISTENING = "0A"
"""The state of a listening socket in /proc/net/tcp."""


class RunningPair:
    """A started server and its started client."""

    def __init__(self, client: subprocess.Popen[bytes]) -> None:
        self._client = client

    def wait(self, timeout: float | None = None) -> int:
        """Return the client's exit status. Raises TimeLimitError if the client does not end in
        time.
        """
        try:
            status = self._client.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeLimitError(
                f"the program did not end within {timeout:g} s",
                "allow more time, or find out what the program waits for",
            ) from error
        return status if status >= 0 else 128 - status


@contextmanager
def pair_on_cluster(
    environment: Environment,
    state: ClusterState,
    program: Program,
    stdin: IO[bytes] | int,
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> Iterator[RunningPair]:
    """Start both programs; nothing of them is left at the end. The server's output goes to
    `stderr`.

    On several hosts ssh starts both. Raises VicinalError if a program cannot be started.
    """
    nodes = nodes_of(state)
    first, last = nodes[0], nodes[-1]
    on_hosts = environment.backends == {"host"}
    address = address_of(state, first, on_hosts=on_hosts)
    mark = f"{_MARK}={os.getpid()}-{secrets.token_hex(4)}"
    variables = [f"{name}={value}" for name, value in _variables(environment, state, program)]
    vms = "vm" in environment.backends
    inside = _Inside(
        state.name,
        [mark, *variables],
        vms=vms,
        # The processors of other hosts are not known here.
        pins=not vms and not state.hosts,
    )
    client: subprocess.Popen[bytes] | None = None
    server: subprocess.Popen[bytes] | None = None
    try:
        before = inside.listening(first.name)
        server = subprocess.Popen(
            inside.command(first.name, program.server, 0),
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,  # this process forwards Ctrl-C
        )
        _await_listening(inside, first.name, before, server)
        words = [word.replace("{server}", address) for word in program.command]
        client = subprocess.Popen(
            inside.command(last.name, words, 1),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        yield RunningPair(client)
    finally:
        for name in dict.fromkeys([first.name, last.name]):
            with suppress(VicinalError):  # nothing runs in a node that ended
                inside.clear(name, mark)
        for started in (server, client):
            if started is not None:
                started.kill()
                started.wait()
        inside.close()


class _Inside:
    """Runs commands in the nodes of a cluster."""

    def __init__(self, cluster: str, variables: Sequence[str], *, vms: bool, pins: bool) -> None:
        self._cluster = cluster
        self._variables = variables
        self._cpus = usable_cpus() if pins else []
        nodes = open_nodes(cluster) if vms else None
        self._guests = nodes if isinstance(nodes, VmGuests | FarGuests) else None
        if self._guests is not None:
            try:
                self._guests.enter()
            except BaseException:
                self._guests.close()
                raise

    def close(self) -> None:
        """Close the connections that were opened for the commands."""
        if self._guests is not None:
            self._guests.close()

    def command(self, node: str, words: Sequence[str], number: int) -> list[str]:
        """The command line that starts the pair's program `number` in a node."""
        program = words[0]
        if self._guests is not None:
            program = placed(Path(program), self._guests)
        pin = ["taskset", "-c", str(self._cpus[number % len(self._cpus)])] if self._cpus else []
        whole = ["/usr/bin/env", *self._variables, *pin, program, *words[1:]]
        return node_command(self._cluster, node, whole, tty=False)

    def listening(self, node: str) -> set[str]:
        """The TCP addresses on which programs in a node listen, in the kernel's notation."""
        script = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null"
        lines = self._run(node, ["sh", "-c", script]).splitlines()
        fields = [line.split() for line in lines]
        return {each[1] for each in fields if len(each) > 3 and each[3] == _LISTENING}

    def clear(self, node: str, mark: str) -> None:
        """Kill all processes with the mark."""
        self._run(node, ["sh", "-c", CLEAR, "sh", mark])

    def _run(self, node: str, words: list[str]) -> str:
        try:
            done = subprocess.run(
                node_command(self._cluster, node, words, tty=False),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise VicinalError(
                f"{node} did not answer within {_ANSWER_SECONDS:g} s", "see `vicinal status`"
            ) from error
        return done.stdout.decode(errors="replace")


def _await_listening(
    inside: _Inside, node: str, before: set[str], server: subprocess.Popen[bytes]
) -> None:
    deadline = time.monotonic() + _LISTEN_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise VicinalError(
                f"the server ended at once, with status {server.returncode}",
                "read its output in the result's outputs/",
            )
        if inside.listening(node) - before:
            return
        time.sleep(_POLL_SECONDS)


def _variables(
    environment: Environment, state: ClusterState, program: Program
) -> Iterator[tuple[str, str]]:
    """The variables by which libfabric uses the environment's path, and the program's own
    variables.
    """
    if environment.path is not MessagePath.SHARED_MEMORY:
        region = None
        if environment.path is MessagePath.REGION and "vm" not in environment.backends:
            inside = "container" in environment.backends
            region = f"file:{REGION}" if inside else f"file:{state.region}"
        yield from mpi_environment(environment.mpi, environment.path, region).items()
    if environment.progress is not None and environment.path is MessagePath.REGION:
        yield "VICINAL_PROGRESS", environment.progress.value
    yield from program.variables.items()
    yield from environment.variables.items()
