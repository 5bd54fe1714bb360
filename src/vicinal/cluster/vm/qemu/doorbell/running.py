"""The server of a region's doorbells as a process that ends with the one that started it."""

import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import vicinal
from vicinal.base.child import dies_with_parent
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.qemu.doorbell import VECTORS, Doorbell

_START_SECONDS = 30.0
_BACKLOG = 16


class RunningServer:
    """A server that guests can connect to, from when this returns.

    `directory` is one that nobody else may search. Raises VicinalError where the server does not
    start. Only the thread that made it keeps it alive.
    """

    def __init__(
        self, directory: Path, region: Path, *, clients: int, vectors: int = VECTORS
    ) -> None:
        self.doorbell = Doorbell(directory / "doorbell", vectors)
        path = self.doorbell.socket
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen(_BACKLOG)
            memory = os.open(region, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._process = self._start(listener.fileno(), memory, clients)
            finally:
                os.close(memory)
        self._wait_ready()

    @property
    def process(self) -> int:
        """The server's process id."""
        return self._process.pid

    def stop(self) -> None:
        """End the server; guests keep the interrupts that they have. May be called again."""
        self._process.kill()
        self._process.communicate()

    def _start(self, listener: int, memory: int, clients: int) -> subprocess.Popen[bytes]:
        numbers = [str(each) for each in (listener, memory, self.doorbell.vectors, clients)]
        package = Path(vicinal.__file__).resolve().parent.parent
        return subprocess.Popen(
            [*dies_with_parent(), sys.executable, "-P", "-m", __package__, *numbers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(package)},
            pass_fds=(listener, memory),
            start_new_session=True,  # Ctrl-C is for the manager
        )

    def _wait_ready(self) -> None:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        if readable and self._process.stdout.readline():
            return
        self._process.kill()
        _, errors = self._process.communicate()
        lines = errors.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise VicinalError(
            f"the server of the region's doorbells did not start ({lines[-1]})",
            "end something else, and try again",
        )
