"""The process that serves a region's doorbells. A cluster's server outlives the command that starts
it; a command's own server ends with the command.

The files of a cluster's server are in a directory of its own:

    DIRECTORY/socket    the VMs' devices connect to it
    DIRECTORY/claim     locked by the server; see base/daemon.py
    DIRECTORY/log       the server's errors

If the server ends, running VMs keep their interrupts and run on. A VM that starts needs a
server, and can interrupt only VMs that are connected to the same server.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vicinal.base.child import dies_with_parent
from vicinal.base.daemon import (
    NotReadyError,
    await_ready,
    claimant,
    end,
    last_lines,
    launch,
    module_command,
    module_environment,
)
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.vm.qemu.doorbell import VECTORS, Doorbell

_MODULE = Doorbell.__module__
"""The package, which is also a program."""
_START_SECONDS = 30.0
_END_SECONDS = 10.0
_BACKLOG = 64


class LastingServer:
    """The server with its files in a directory, whether it runs or not."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "socket"
        self._claim = directory / "claim"
        self._log = directory / "log"

    @property
    def process(self) -> int | None:
        """Its process number; None if it does not run, 0 if it is in another PID namespace."""
        return claimant(self._claim)

    def serves(self, region: Path) -> bool:
        """Whether it runs with this very file, not with a former file of the same name."""
        process = self.process
        if process is None:
            return False
        with suppress(OSError):  # the server or the file may disappear
            wanted = region.stat()
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if os.path.samestat(descriptor.stat(), wanted):
                        return True
        return False

    def start(self, region: Path, *, clients: int, vectors: int) -> None:
        """Start the server. Afterwards guests can connect.

        Raises VicinalError if it does not start; then no server runs.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        try:
            with _opened(self.socket, region) as (listener, memory):
                lock = os.open(self._claim, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    alive = launch(
                        _MODULE,
                        _words(listener, memory, vectors, clients, lock, self._claim),
                        self._log,
                        inherited=(listener, memory, lock),
                    )
                finally:
                    os.close(lock)
                _await(alive, self._log)
        except BaseException as error:
            # A server that starts later finds no listener at the socket, and ends.
            self.end()
            if isinstance(error, OSError):
                raise _not_started(describe_os_error(error)) from error
            raise

    def end(self) -> None:
        """End the server, and wait until it has ended. Raises VicinalError if it does not end."""
        end(lambda: self.process, "the server of the region's doorbells", _END_SECONDS)

    def remove(self) -> None:
        """End the server, and remove its directory."""
        self.end()
        with suppress(FileNotFoundError):
            shutil.rmtree(self.directory)


class RunningServer:
    """A server that ends with the thread that started it; guests can connect at once.

    Other users must not be able to search `directory`. Raises VicinalError if the server does not
    start.
    """

    def __init__(
        self, directory: Path, region: Path, *, clients: int, vectors: int = VECTORS
    ) -> None:
        self.doorbell = Doorbell(directory / "doorbell", vectors)
        log = directory / "doorbell.log"
        before = dies_with_parent()
        with _opened(self.doorbell.socket, region) as (listener, memory), log.open("wb") as output:
            alive, ready = os.pipe()
            words = _words(listener, memory, vectors, clients, ready)
            self._process = subprocess.Popen(
                [*before, *module_command(_MODULE, *words)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=module_environment(),
                pass_fds=(listener, memory, ready),
                start_new_session=True,  # Ctrl-C reaches only the manager
            )
            os.close(ready)
        try:
            _await(alive, log)
        except BaseException:
            self.stop()
            raise

    @property
    def process(self) -> int:
        """The server's process number."""
        return self._process.pid

    def stop(self) -> None:
        """End the server. Guests keep their interrupts. Further calls have no effect."""
        self._process.kill()
        self._process.wait()


@contextmanager
def _opened(path: Path, region: Path) -> Iterator[tuple[int, int]]:
    """The files that a server inherits: a listening socket at the path, and the region's file."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        memory = os.open(region, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield listener.fileno(), memory
        finally:
            os.close(memory)


def _words(*values: int | Path) -> list[str]:
    return [str(value) for value in values]


def _await(alive: int, log: Path) -> None:
    try:
        await_ready(alive, _START_SECONDS)
    except NotReadyError as error:
        raise _not_started("".join(last_lines(log)) or "without an error message") from error


def _not_started(why: str) -> VicinalError:
    return VicinalError(
        f"the server of the region's doorbells did not start ({why})",
        "end other programs, and try again",
    )
