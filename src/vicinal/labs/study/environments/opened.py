"""An environment whose nodes run, and launches of programs in it.

Each trial of an MPI program gets a fresh launcher, and each rank its own processor. After each
launch the region's counters show whether messages used the path that the environment names.
"""

import errno
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from vicinal.base.errors import TimeLimitError, VicinalError, describe_os_error
from vicinal.cluster.manager import cluster_state, node_command
from vicinal.cluster.status import ClusterState
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.labs.programs import first_words
from vicinal.labs.study.environments.nodes import (
    accelerator_of,
    limitations_of,
    nodes_of,
    ranks_on_hosts,
)
from vicinal.labs.study.environments.pair import pair_on_cluster
from vicinal.labs.study.file.model import Environment
from vicinal.labs.study.workloads.driver import Program
from vicinal.launch.cluster_job import job_on_cluster
from vicinal.launch.host_job import HostJob
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.job import Job
from vicinal.region import RegionState, inspect

_ANSWER_SECONDS = 60.0

_KEPT_BYTES = 1 << 20
"""Bytes kept of each output of a failed launch; errors are reported at the beginning or the end."""

_ROOM_BYTES = 4096
"""Free bytes that must follow an output; otherwise its end may be missing."""

_SAID_MOST = 200
"""Characters of a failed launch's own message that are shown."""

_LIMIT = "the limit of a launch: allow more with --timeout, or find out what the program waits for"


@dataclass(frozen=True)
class Launched:
    """One launch that ended."""

    stdout: bytes
    stderr: bytes
    seconds: float
    """Time from start to end."""
    trouble: str | None = None
    """Why the launch measured nothing; None after success."""

    @property
    def outputs(self) -> dict[str, bytes]:
        """The output of the launch by stream, shortened to what is kept of a failed launch."""
        written = {"stdout": self.stdout, "stderr": self.stderr}
        return {name: _shortened(content) for name, content in written.items() if content}


class Running(Protocol):
    """A started job, or a started pair of programs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises TimeLimitError if the program does not end in time."""


Start = Callable[[IO[bytes], IO[bytes], IO[bytes]], AbstractContextManager[Running]]
"""Starts a program with these streams as input, output and errors; leaves nothing behind at the
end."""


def launch(start: Start, stdin: bytes, seconds: float) -> Launched:
    """Start a program, wait up to `seconds` for its end, and keep its output.

    Raises VicinalError if there is no room for the output, because a cut output says nothing about
    the program.
    """
    with _temporary() as given, _temporary() as output, _temporary() as errors:
        with _writing():
            if given.write(stdin) < len(stdin):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        given.seek(0)
        began = time.monotonic()
        trouble = None
        try:
            with start(given, output, errors) as running:
                status = running.wait(seconds)
                took = time.monotonic() - began
            if status != 0:
                trouble = f"it ended with status {status}"
        except TimeLimitError as error:
            took = time.monotonic() - began
            trouble = f"{error.message}, {_LIMIT}"
        except VicinalError as error:
            took = time.monotonic() - began
            trouble = str(error)
        except OSError as error:  # for example because a node is just ending
            took = time.monotonic() - began
            trouble = f"it could not be started ({describe_os_error(error)})"
        written = []
        for stream in (output, errors):
            _check_room(stream)
            stream.seek(0)
            written.append(stream.read())
        if trouble is not None:
            said = first_words(written[1].decode(errors="replace"))
            trouble += f" ({said[:_SAID_MOST]})" if said else ""
        return Launched(written[0], written[1], took, trouble)


def _temporary() -> IO[bytes]:
    with _writing():
        return tempfile.TemporaryFile(buffering=0)


def _check_room(stream: IO[bytes]) -> None:
    """Raise VicinalError if the file could not have grown further."""
    with _writing():
        end = os.fstat(stream.fileno()).st_size
        os.posix_fallocate(stream.fileno(), end, _ROOM_BYTES)
        os.ftruncate(stream.fileno(), end)


@contextmanager
def _writing() -> Iterator[None]:
    """Turns errors of temporary files into a VicinalError."""
    try:
        yield
    except OSError as error:
        raise VicinalError(
            "the output of programs cannot be written to the directory for temporary files "
            f"({describe_os_error(error)}); all earlier trials are stored",
            "free space in it, or let TMPDIR name another directory, and resume with --resume",
        ) from error


def source(given: IO[bytes], stdin: bytes) -> IO[bytes] | int:
    """The input of a program. Launchers treat an empty file and no input differently."""
    return given if stdin else subprocess.DEVNULL


def _shortened(content: bytes) -> bytes:
    """The beginning and the end of output that is too long."""
    if len(content) <= _KEPT_BYTES:
        return content
    half = _KEPT_BYTES // 2
    left_out = len(content) - 2 * half
    return content[:half] + f"\n[{left_out} bytes left out]\n".encode() + content[-half:]


class OpenEnvironment:
    """An environment whose cluster runs under this name. Raises VicinalError if no node can be
    reached.
    """

    def __init__(self, environment: Environment, cluster: str) -> None:
        self.environment = environment
        self.cluster = cluster
        self.state: ClusterState = cluster_state(cluster)
        self._nodes = nodes_of(self.state)
        self._made = accelerator_of(self.state)
        if not self._nodes:
            raise VicinalError(f"no node of {cluster} can be reached", "see `vicinal status`")

    @property
    def patience(self) -> float:
        """The factor by which launches may take longer than usual, above 1 if processors are
        emulated.
        """
        return 1.0 if self._made is None else self._made.accelerator.patience

    @property
    def emulated(self) -> bool:
        """Whether QEMU emulates its processors."""
        return self._made is not None and self._made.accelerator is Accelerator.TCG

    def launch(self, program: Program, seconds: float) -> Launched:
        """Run a program to its end, for at most `seconds`, and check which path its messages used.

        Raises VicinalError if no program could be launched, for example on a full disk.
        """
        try:
            path_check = PathCheck(self.state.region)
        except VicinalError as error:  # the region disappeared with its nodes
            return Launched(b"", b"", 0.0, str(error))
        launched = launch(
            lambda given, output, errors: self._start(program, given, output, errors),
            program.stdin,
            math.ceil(seconds),
        )
        if launched.trouble is None:
            try:
                trouble = path_check.trouble(self.environment.path, program.ranks)
            except VicinalError as error:
                trouble = str(error)
            if trouble is not None:
                return Launched(launched.stdout, launched.stderr, launched.seconds, trouble)
        return launched

    def spread_trouble(self, facts: Mapping[str, object], program: Program) -> str | None:
        """Why the ranks ran on the wrong number of nodes; None if right, or if the program does not
        say where.
        """
        hosts = facts.get("hosts")
        if program.server or not isinstance(hosts, list):
            return None
        alone = self.environment.path is MessagePath.SHARED_MEMORY
        wanted = 1 if alone else min(program.ranks, len(self._nodes))
        found = len(set(hosts))
        if found == wanted:
            return None
        return f"its ranks ran on {found} nodes instead of {wanted}"

    def facts(self) -> dict[str, Any]:
        """Facts about the nodes for readers of the result, for the manifest."""
        made = self._made
        facts: dict[str, Any] = {
            "nodes": [
                {"name": node.name, "runtime": node.runtime, "processors": list(node.cpus)}
                for node in self._nodes
            ],
            "limitations": limitations_of(self.state),
            "kernel": self._kernel(),
        }
        if made is not None:
            facts["accelerator"] = made.accelerator.value
            facts["accelerator_reason"] = made.reason
            facts["emulated"] = self.emulated
            facts["accelerator_means"] = made.accelerator.description
        return facts

    def _kernel(self) -> str | None:
        """The kernel release of the first node; None if the node does not answer."""
        command = node_command(self.cluster, self._nodes[0].name, ["uname", "-r"], tty=False)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.strip() or None

    def _start(
        self, program: Program, given: IO[bytes], output: IO[bytes], errors: IO[bytes]
    ) -> AbstractContextManager[Running]:
        stdin = source(given, program.stdin)
        if program.server:
            return pair_on_cluster(self.environment, self.state, program, stdin, output, errors)
        if self.state.hosts and self.environment.backends == {"host"}:
            job = self._job(program)
            hosts = ranks_on_hosts(self.state, job.ranks)
            return HostJob(job, hosts, stdin=stdin, stdout=output, stderr=errors)
        return job_on_cluster(
            self._job(program), self.cluster, stdin=stdin, stdout=output, stderr=errors
        )

    def _job(self, program: Program) -> Job:
        environment = self.environment
        return Job(
            program=list(program.command),
            ranks=program.ranks,
            mpi=environment.mpi,
            path=environment.path,
            progress=environment.progress if environment.path is MessagePath.REGION else None,
            cma=environment.cma,
            pin=self._pins,
            environment={**program.variables, **environment.variables},
            directory=Path("/"),  # exists in every node
            files=program.files,
        )

    @property
    def _pins(self) -> bool:
        """Whether the job, and not the cluster, gives each rank a processor."""
        if self.state.hosts:
            return False  # the processors of other hosts are not known here
        placement = self.environment.cluster.get("placement") or {}
        return "vm" not in self.environment.backends and placement.get("policy", "none") == "none"


class PathCheck:
    """Reads a region before and after a launch."""

    def __init__(self, region: Path | None) -> None:
        self._region = region
        state = self._state()
        self._before: Collection[int] = set() if state is None else _nonces(state)

    def trouble(self, path: MessagePath, ranks: int) -> str | None:
        """Why the launch did not use its environment's path, as a phrase; None if it did."""
        state = self._state()
        came = set() if state is None else _nonces(state) - set(self._before)
        if path is not MessagePath.REGION:
            return f"its ranks joined the region, but should use {path.value}" if came else None
        if ranks > 1 and (state is None or not _talked(state, came)):
            return "nothing went through the region: the values are not the region's"
        return None

    def _state(self) -> RegionState | None:
        return None if self._region is None else inspect(self._region, patience=0)


def _nonces(state: RegionState) -> set[int]:
    return {member.nonce for member in state.members if member.nonce}


def _talked(state: RegionState, came: set[int]) -> bool:
    """Whether a connection exists between two different members that joined for the launch."""
    fresh = {member.slot: member for member in state.members if member.nonce in came}
    for connection in state.connections:
        sender, receiver = fresh.get(connection.sender), fresh.get(connection.receiver)
        if (
            sender is not None
            and receiver is not None
            and sender.slot != receiver.slot
            and connection.receiver_epoch == receiver.epoch
        ):
            return True
    return False
