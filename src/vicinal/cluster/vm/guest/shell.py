"""The host's ssh connection to a guest over a virtio port, independent of who runs its QEMU."""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vicinal.base.child import dies_with_parent
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest import connection as guest_connection
from vicinal.cluster.vm.guest.commands import SSH_FAILED, GuestCommands
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.image.layout import USER

_FIRST_SECONDS = 20.0
"""Time limit of the first attempt to connect; each further attempt may take twice as long."""
_LOST_MOST = 3
"""Number of attempts that may end by themselves. A guest that has not yet noticed the end of the
last connection takes the first byte of the next connection for a part of the last.
"""
_AGAIN_SECONDS = 1.0
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0


class GuestShell(GuestCommands):
    """Runs commands in a guest as the guest's user.

    `name` is the guest's host name, and `directory` has the sockets. `alive` returns whether the
    guest still runs; its argument is True if the connection was just lost. `failure` returns an
    error that says what is wrong with the guest. The names of the sockets begin with `stem`, by
    default the guest's name. The connection ends with the thread that made it.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        keys: Keys,
        *,
        alive: Callable[[bool], bool],
        failure: Callable[[str], VicinalError],
        stem: str | None = None,
    ) -> None:
        stem = stem or name
        self.name = name
        self.control = directory / f"{stem}.port"
        """Socket of the virtio port, which QEMU opens."""
        self._keys = keys
        self._alive = alive
        self._failure = failure
        self._errors = directory / f"{stem}.ssh-errors"
        self._master = directory / f"{stem}.ssh"
        self._connection: subprocess.Popen[bytes] | None = None
        self._begun = False

    @property
    def complaint(self) -> str:
        """What ssh wrote about the connection, in parentheses; "" if it wrote nothing."""
        return complaints(self._errors)

    def begin(self, seconds: float) -> None:
        """Start the connection for which connect() then waits. QEMU must have opened the port.

        So the host can connect to several guests at the same time.
        """
        self._master.unlink(missing_ok=True)  # of an ssh that was killed
        self._start(seconds)
        self._begun = True

    def connect(self, seconds: float) -> None:
        """Wait until commands can run in the guest.

        Raises VicinalError, by `failure`, if that takes longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        self._wait_for(self.control, deadline, f"QEMU did not open a port within {seconds:.0f} s")
        if not self._begun:
            self.begin(seconds)
        self._begun = False
        patience, lost = _FIRST_SECONDS, 0
        while not self._try(min(deadline, time.monotonic() + patience)):
            if time.monotonic() > deadline:
                raise self._failure(f"it accepted no connection within {seconds:.0f} s")
            if self._ended():
                lost += 1
                if lost == _LOST_MOST:
                    raise self._failure("it accepted no connection")
                time.sleep(_AGAIN_SECONDS)
            else:
                # A guest that was saved or moved may still believe in its former connection. It
                # notices the end of that connection only when this connection ends.
                self.close()
                patience *= 2
            self._start(seconds)

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        """The command line on this host that runs a command in the guest as its user.

        `tty` requests a terminal for the command.
        """
        variables = [f"{name}={value}" for name, value in environment.items()]
        inside = shlex.join(["env", *variables, *command] if variables else command)
        return [
            "ssh",
            "-t" if tty else "-T",
            *self._ssh_options(_STOP_SECONDS),
            self.name,
            "--",
            inside,
        ]

    def is_lost(self, status: int) -> bool:
        """Whether this exit status means that the connection ended instead of the command."""
        return status == SSH_FAILED and not self._master.exists()

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with the guest."""
        return self._failure(what)

    def close(self) -> None:
        """End the connection. Further calls have no effect."""
        if self._connection is not None:
            self._connection.terminate()
            try:
                self._connection.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._connection.kill()
                self._connection.wait()

    def _try(self, until: float) -> bool:
        """Whether the started ssh connected before the time `until`."""
        while not self._master.exists():
            lost = self._ended()
            if not self._alive(lost):
                raise self._failure("it accepted no connection")
            if lost:
                return False
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _start(self, seconds: float) -> None:
        with self._errors.open("wb") as errors:
            self._connection = subprocess.Popen(
                [*self._ssh_prefix(), "ssh", "-N", "-M", *self._ssh_options(seconds), self.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _ended(self) -> bool:
        return self._connection is not None and self._connection.poll() is not None

    def _ssh_prefix(self) -> Sequence[str]:
        """The command prefix that ends the connection with this process."""
        return dies_with_parent()

    def _wait_for(self, path: Path, deadline: float, complaint: str) -> None:
        while not path.exists():
            if not self._alive(False) or time.monotonic() > deadline:
                raise self._failure(complaint)
            time.sleep(_POLL_SECONDS)

    def _ssh_options(self, seconds: float) -> list[str]:
        # Run as a file: to find it as a module of the package takes three times as long.
        proxy = [sys.executable, "-I", "-S", guest_connection.__file__]
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(int(seconds)),
            "ControlPath": str(self._master),
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self._keys.user),
            # Nobody can record the traffic at QEMU's port and decrypt it decades later. The key
            # exchange that prevents this takes half the connection time of an emulated guest.
            "KexAlgorithms": "curve25519-sha256",
            "LogLevel": "ERROR",
            "ProxyCommand": shlex.join([*proxy, str(self.control)]).replace("%", "%%"),
            "ProxyUseFdpass": "yes",
            "StrictHostKeyChecking": "yes",
            "User": USER,
            "UserKnownHostsFile": str(self._keys.known_hosts),
        }
        settings = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["-F", "none", *settings]


def complaints(file: Path) -> str:
    """What a program wrote to its file of errors, in parentheses."""
    with suppress(OSError):
        text = file.read_text(errors="replace").strip()
        return f" ({' | '.join(text.splitlines())})" if text else ""
    return ""
