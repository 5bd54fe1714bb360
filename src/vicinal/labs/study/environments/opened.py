"""An environment whose nodes are up: programs are launched in it.

An MPI program gets a fresh launcher for each trial, and its ranks a processor each. After each
launch the region's own counts show whether messages went the way that the environment is named for.
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
"""Of each output of a launch that failed; what is wrong is said at an end of it."""

_ROOM_BYTES = 4096
"""That there must be behind an output, or its end may be missing."""

_SAID_MOST = 200
"""Characters of what a launch says that failed."""

_LIMIT = "the limit of a launch here: give launches more by --timeout, or see what it waits for"


@dataclass(frozen=True)
class Launched:
    """One launch, at its end."""

    stdout: bytes
    stderr: bytes
    seconds: float
    """From its start to its end."""
    trouble: str | None = None
    """Why its figures are none."""

    @property
    def outputs(self) -> dict[str, bytes]:
        """What it wrote, as far as it is kept of one that failed."""
        written = {"stdout": self.stdout, "stderr": self.stderr}
        return {name: _shortened(content) for name, content in written.items() if content}


class Running(Protocol):
    """What was started: a job, or a pair of programs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises VicinalError where it does not end in time."""


Start = Callable[[IO[bytes], IO[bytes], IO[bytes]], AbstractContextManager[Running]]
"""Starts it with these as its input, output and errors; at the end nothing of it is left."""


def launch(start: Start, stdin: bytes, seconds: float) -> Launched:
    """Start something, wait for its end for so many seconds at most, and keep what it wrote.

    Raises VicinalError where what it writes has no room: such output says nothing of the program.
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
        except OSError as error:  # of a node that is just ending, say
            took = time.monotonic() - began
            trouble = f"it could not be run ({describe_os_error(error)})"
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
    """Raise VicinalError where a file could not have got longer."""
    with _writing():
        end = os.fstat(stream.fileno()).st_size
        os.posix_fallocate(stream.fileno(), end, _ROOM_BYTES)
        os.ftruncate(stream.fileno(), end)


@contextmanager
def _writing() -> Iterator[None]:
    """Says in our words that a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise VicinalError(
            "what programs print cannot be written to the directory for temporary files "
            f"({describe_os_error(error)}); all trials before are kept",
            "make room in it, or let TMPDIR name another, and go on with --resume",
        ) from error


def source(given: IO[bytes], stdin: bytes) -> IO[bytes] | int:
    """The input of a program: nothing is no empty file, which launchers treat differently."""
    return given if stdin else subprocess.DEVNULL


def _shortened(content: bytes) -> bytes:
    """The beginning and the end of what is too long to be kept."""
    if len(content) <= _KEPT_BYTES:
        return content
    half = _KEPT_BYTES // 2
    left_out = len(content) - 2 * half
    return content[:half] + f"\n[{left_out} bytes left out]\n".encode() + content[-half:]


class OpenEnvironment:
    """One whose cluster runs, under this name. Raises VicinalError where no node is reached."""

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
        """How much longer than elsewhere things take in it: where processors are emulated."""
        return 1.0 if self._made is None else self._made.accelerator.patience

    @property
    def emulated(self) -> bool:
        """Whether its processors are QEMU's doing."""
        return self._made is not None and self._made.accelerator is Accelerator.TCG

    def launch(self, program: Program, seconds: float) -> Launched:
        """Run a program to its end, for so many seconds at most, and see which way it went.

        Raises VicinalError where nothing could be launched by anybody: on a full disk, say.
        """
        try:
            witness = Witness(self.state.region)
        except VicinalError as error:  # the region went with its nodes
            return Launched(b"", b"", 0.0, str(error))
        launched = launch(
            lambda given, output, errors: self._start(program, given, output, errors),
            program.stdin,
            math.ceil(seconds),
        )
        if launched.trouble is None:
            try:
                trouble = witness.trouble(self.environment.path, program.ranks)
            except VicinalError as error:
                trouble = str(error)
            if trouble is not None:
                return Launched(launched.stdout, launched.stderr, launched.seconds, trouble)
        return launched

    def spread_trouble(self, facts: Mapping[str, object], program: Program) -> str | None:
        """Why its ranks were not where they should be, where the program says where it ran."""
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
        """What a reader has to know of its nodes: for the manifest."""
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
        """The release of the kernel that its first node has; None where that does not answer."""
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
        if self.state.hosts and self.environment.backends == {"native"}:
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
            directory=Path("/"),  # which every node sees
            files=program.files,
        )

    @property
    def _pins(self) -> bool:
        """Whether it is for us to give each rank a processor, and not for the cluster."""
        if self.state.hosts:
            return False  # those of other hosts are not ours to count
        placement = self.environment.cluster.get("placement") or {}
        return "vm" not in self.environment.backends and placement.get("policy", "none") == "none"


class Witness:
    """Looks at a region before a launch and after it."""

    def __init__(self, region: Path | None) -> None:
        self._region = region
        state = self._state()
        self._before: Collection[int] = set() if state is None else _nonces(state)

    def trouble(self, path: MessagePath, ranks: int) -> str | None:
        """Why the launch is not what its environment says, as a phrase; None where it is."""
        state = self._state()
        came = set() if state is None else _nonces(state) - set(self._before)
        if path is not MessagePath.REGION:
            return (
                f"its ranks were in the region, though they are to use {path.value}"
                if came
                else None
            )
        if ranks > 1 and (state is None or not _talked(state, came)):
            return "nothing went through the region: the figures would not be what they are called"
        return None

    def _state(self) -> RegionState | None:
        return None if self._region is None else inspect(self._region, patience=0)


def _nonces(state: RegionState) -> set[int]:
    return {member.nonce for member in state.members if member.nonce}


def _talked(state: RegionState, came: set[int]) -> bool:
    """Whether there was a connection from one rank to another among the members that came."""
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
