"""The host as a node of a cluster: processes on the node's processors, and a directory.

    node = HostNode("lab", "host", cpus=(2, 3))
    node.create()
    subprocess.run(node.exec_command("host", ["hostname"]))
    node.remove()

The node's processes are known by a variable that all of them inherit. The node can run jobs
(job_nodes.py); its head is the host too.
"""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.nodes.job_nodes import START, JobPaths, Node
from vicinal.cluster.nodes.layout import RANK_TEXT
from vicinal.cluster.nodes.network import find_tool

if TYPE_CHECKING:
    import psutil

_NAME = "localhost"
"""The name by which launchers know their own host."""

_NODE_MARK = "VICINAL_HOST_NODE"
_JOB_MARK = "VICINAL_HOST_JOB"
_STOPPED = "stopped"
_REMOTE_SHELL = '#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n'
"""The remote shell, which launchers require and do not use for their own host."""

_CLEAR_SECONDS = 20.0
_POLL_SECONDS = 0.005


class HostNode:
    """The host as a node of a cluster of this user; without `cpus` it has all usable processors."""

    def __init__(self, cluster: str, name: str, cpus: tuple[int, ...] = ()) -> None:
        self.name = name
        self.cpus = cpus
        # A cluster's name has no dot, so this path is not a region's.
        self.directory = Path(f"/dev/shm/vicinal-{os.geteuid()}-{cluster}.host-node")
        self._mark = f"{os.geteuid()}/{cluster}/{name}"
        self._job = f"{os.getpid()}-{secrets.token_hex(4)}"

    @property
    def is_there(self) -> bool:
        """Whether the node exists, and this user created it."""
        with suppress(FileNotFoundError):
            return self.directory.lstat().st_uid == os.geteuid() and self._rank.is_file()
        return False

    @property
    def is_stopped(self) -> bool:
        """Whether the node is stopped, so that no processes may start."""
        return (self.directory / _STOPPED).exists()

    def check(self) -> None:
        """Raise VicinalError if a required tool is missing."""
        if self.cpus and find_tool("taskset") is None:
            raise VicinalError("the tool taskset was not found", "install util-linux")

    def create(self) -> None:
        """Create the node's directory. Raises VicinalError."""
        self.check()
        try:
            self.directory.mkdir(mode=0o700)
            shell = self.directory / "remote-shell"
            shell.write_text(_REMOTE_SHELL)
            shell.chmod(0o700)
            self._rank.write_text(RANK_TEXT)
        except OSError as error:
            raise VicinalError(
                f"{self.directory} could not be created ({describe_os_error(error)})",
                "check who owns it",
            ) from error

    def stop(self) -> None:
        """End the node's processes, and let no more start."""
        (self.directory / _STOPPED).touch()
        self._end(_NODE_MARK, self._mark)

    def start(self) -> None:
        (self.directory / _STOPPED).unlink(missing_ok=True)

    def remove(self) -> None:
        """End the node's processes, and remove its directory."""
        self._end(_NODE_MARK, self._mark)
        with suppress(FileNotFoundError):
            if self.directory.lstat().st_uid == os.geteuid():
                shutil.rmtree(self.directory)

    def exec_command(
        self, name: str, command: Sequence[str], *, tty: bool = False, directory: str = "/"
    ) -> list[str]:
        """Return the command line that runs `command` on the node's processors.

        Raises VicinalError if `name` is not the node's name, or the node does not run.
        """
        del tty  # the command inherits this process's terminal
        if name != self.name:
            raise VicinalError(f"there is no node {name!r}", "check `vicinal status`")
        return self.head_command(command, Path(directory))

    # The methods of JobNodes.

    @property
    def nodes(self) -> list[Node]:
        """The node under the name by which launchers know it."""
        return [Node(_NAME, "127.0.0.1", str(Path("/proc/self/ns/pid").readlink()))]

    @property
    def job_paths(self) -> JobPaths:
        """Paths in the node's directory."""
        return JobPaths(str(self.directory), str(self.directory))

    @property
    def exchange(self) -> Path:
        return self.directory

    def seen_from_host(self, path: str) -> Path:
        return Path(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """Return the command line that runs `command` as a process of the node.

        Raises VicinalError if the node does not exist or is stopped.
        """
        if not self.is_there:
            raise VicinalError(f"the node {self.name} does not exist", "check `vicinal status`")
        if self.is_stopped:
            raise VicinalError(f"{self.name} does not run", START)
        marks = [f"{_NODE_MARK}={self._mark}", f"{_JOB_MARK}={self._job}"]
        pin = []
        if self.cpus:
            pin = [find_tool("taskset") or "taskset", "-c", ",".join(map(str, self.cpus))]
        change = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(directory or Path.cwd())]
        return ["/usr/bin/env", *marks, *change, *pin, *command]

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill and reap a process that head_command() started."""
        running.kill()
        running.wait()

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a process that head_command() started."""
        running.send_signal(number)

    def processes(self, node: str | None = None) -> "list[psutil.Process]":
        """Return the processes of jobs that this object started."""
        del node  # there is only one node
        return list(_marked(_JOB_MARK, self._job))

    def clear(self) -> None:
        """Kill processes that are left of jobs that this object started."""
        self._end(_JOB_MARK, self._job)

    def ended_nodes(self) -> list[str]:
        """Return the node's name if `stop` or `down` ended the node."""
        return [] if self.is_there and not self.is_stopped else [self.name]

    @property
    def _rank(self) -> Path:
        return self.directory / "rank"

    def _end(self, variable: str, value: str) -> None:
        """Kill all processes with a mark, except this process and its parents.

        A parent, such as the shell of the command, may be a process of the node. Raises
        VicinalError if a process does not end in 20 s.
        """
        import psutil

        ours = {each.pid for each in (psutil.Process(), *psutil.Process().parents())}
        deadline = time.monotonic() + _CLEAR_SECONDS
        while left := [each for each in _marked(variable, value) if each.pid not in ours]:
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"process {left[0].pid} of {self.name} does not end",
                    f"check what it waits for in the kernel: /proc/{left[0].pid}/stack",
                )
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(_POLL_SECONDS)


def _marked(variable: str, value: str) -> "Iterator[psutil.Process]":
    import psutil

    wanted = f"{variable}={value}".encode()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # A zombie no longer has variables.
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                yield process
