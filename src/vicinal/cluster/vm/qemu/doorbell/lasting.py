"""The server of a cluster's doorbells, from the command that starts it to the one that ends it.

It is in a session of its own, so that no terminal's Ctrl-C and no hang-up is for it, and in a
directory of its own:

    DIRECTORY/socket    what the machines' devices connect to
    DIRECTORY/claim     locked by the server: claim.py
    DIRECTORY/log       what it complained of

Machines keep the interrupts that they have when it ends, and go on without it. One that starts
needs a server, and knows those alone that are connected to the same one.
"""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import vicinal
from vicinal.base.claim import claimant
from vicinal.base.errors import VicinalError, describe_os_error

_START_SECONDS = 30.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.01
_BACKLOG = 64


class LastingServer:
    """The server whose things are in a directory, whether it runs or not."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "socket"
        self._claim = directory / "claim"
        self._log = directory / "log"

    @property
    def process(self) -> int | None:
        """Its process id; None where it does not run, 0 in another PID namespace."""
        return claimant(self._claim)

    def serves(self, region: Path) -> bool:
        """Whether it runs, and has this very file, not one that had the name before."""
        process = self.process
        if process is None:
            return False
        with suppress(OSError):  # it, or the file, went meanwhile
            wanted = region.stat()
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if os.path.samestat(descriptor.stat(), wanted):
                        return True
        return False

    def start(self, region: Path, *, clients: int, vectors: int) -> None:
        """Start it; guests can connect when this returns.

        Raises VicinalError where it does not start; nothing runs then.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self.socket))
                self.socket.chmod(0o600)
                listener.listen(_BACKLOG)
                self._run(listener, region, clients, vectors)
        except BaseException as error:
            # One that comes too late finds that nobody listens, and ends by itself.
            self.end()
            if isinstance(error, OSError):
                raise _not_started(describe_os_error(error)) from error
            raise

    def end(self) -> None:
        """End it, if it runs, and wait for that. Raises VicinalError where it does not end."""
        deadline = time.monotonic() + _END_SECONDS
        while (process := self.process) is not None:
            if process == 0:
                raise VicinalError(
                    "the server of the region's doorbells is in another PID namespace",
                    "call this command where `vicinal up` was called, such as in the container",
                )
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(process)
                try:
                    # Not another that has got its number meanwhile.
                    if self.process == process:
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"the server of the region's doorbells, process {process}, does not end",
                    "end it by hand",
                )
            time.sleep(_POLL_SECONDS)

    def remove(self) -> None:
        """End it, and remove its directory."""
        self.end()
        with suppress(FileNotFoundError):
            shutil.rmtree(self.directory)

    def _run(self, listener: socket.socket, region: Path, clients: int, vectors: int) -> None:
        memory = os.open(region, os.O_RDWR | os.O_CLOEXEC)
        lock = os.open(self._claim, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            numbers = (listener.fileno(), memory, vectors, clients, lock)
            with self._log.open("wb") as log:
                starting = subprocess.Popen(
                    # setsid forks, so that it is nobody's child who may have to reap it.
                    [
                        *("setsid", "--fork", sys.executable, "-P", "-m", __package__),
                        *(*map(str, numbers), str(self._claim)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=os.environ | {"PYTHONPATH": str(Path(vicinal.__file__).parents[1])},
                    pass_fds=(listener.fileno(), memory, lock),
                    cwd="/",
                )
        except FileNotFoundError as error:
            raise VicinalError("the tool setsid was not found", "install util-linux") from error
        finally:
            os.close(lock)
            os.close(memory)
        with starting:
            assert starting.stdout is not None
            readable, _, _ = select.select([starting.stdout], [], [], _START_SECONDS)
            if readable and starting.stdout.readline():
                return
        lines = self._log.read_text(errors="replace").strip().splitlines()
        raise _not_started(lines[-1] if lines else "it said nothing")


def _not_started(why: str) -> VicinalError:
    return VicinalError(
        f"the server of the region's doorbells did not start ({why})",
        "end something else, and try again",
    )
