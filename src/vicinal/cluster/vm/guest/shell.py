"""The host's way into a guest: ssh over a virtio port, whoever runs the guest's QEMU."""

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
"""How long the first of our attempts to get in may take, the next one twice as long."""
_LOST_MOST = 3
"""So many attempts may end by themselves: a guest that has not seen the last connection's end yet
takes the first byte of the next one for what still belongs to that."""
_AGAIN_SECONDS = 1.0
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0


class GuestShell(GuestCommands):
    """Runs commands in a guest as its user.

    `name` is the guest's host name, `directory` where sockets are. `alive` is asked whether the
    guest still runs, with True if the connection was lost just now; `failure` makes the error
    that says what is wrong with the guest. `stem` is what the names of its sockets begin with, by
    default its own. The connection ends with the thread that made it.
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
        """What ssh wrote about the connection, in parentheses; empty if nothing."""
        return complaints(self._errors)

    def begin(self, seconds: float) -> None:
        """Begin what connect() then waits for, where QEMU has opened the port already.

        So several guests are got into at the same time.
        """
        self._master.unlink(missing_ok=True)  # of one that was killed
        self._start(seconds)
        self._begun = True

    def connect(self, seconds: float) -> None:
        """Wait until commands can be run in the guest.

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
                raise self._failure(f"it did not let us in within {seconds:.0f} s")
            if self._ended():
                lost += 1
                if lost == _LOST_MOST:
                    raise self._failure("it did not let us in")
                time.sleep(_AGAIN_SECONDS)
            else:
                # A guest that was saved or moved may take us for whom it talked to before: to see
                # that connection end, it must see this one end.
                self.close()
                patience *= 2
            self._start(seconds)

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        """The command line on this host that runs a command in the guest as its user.

        `tty` is for one that is to have a terminal.
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
        """Whether it was the connection that ended with this status, and not the command."""
        return status == SSH_FAILED and not self._master.exists()

    def failure(self, what: str) -> VicinalError:
        """The error that says what is wrong with the guest."""
        return self._failure(what)

    def close(self) -> None:
        """End the connection; may be called again."""
        if self._connection is not None:
            self._connection.terminate()
            try:
                self._connection.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._connection.kill()
                self._connection.wait()

    def _try(self, until: float) -> bool:
        """Whether ssh, which was started, got in before the time `until`."""
        while not self._master.exists():
            lost = self._ended()
            if not self._alive(lost):
                raise self._failure("it did not let us in")
            if lost:
                return False
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _start(self, seconds: float) -> None:
        with self._errors.open("wb") as errors:
            self._connection = subprocess.Popen(
                [*self._keeper(), "ssh", "-N", "-M", *self._ssh_options(seconds), self.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _ended(self) -> bool:
        return self._connection is not None and self._connection.poll() is not None

    def _keeper(self) -> Sequence[str]:
        """What ends the connection with us."""
        return dies_with_parent()

    def _wait_for(self, path: Path, deadline: float, complaint: str) -> None:
        while not path.exists():
            if not self._alive(False) or time.monotonic() > deadline:
                raise self._failure(complaint)
            time.sleep(_POLL_SECONDS)

    def _ssh_options(self, seconds: float) -> list[str]:
        # By itself it takes a third of the time that the package takes to be found.
        proxy = [sys.executable, "-I", "-S", guest_connection.__file__]
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(int(seconds)),
            "ControlPath": str(self._master),
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self._keys.user),
            # Nobody listens in at QEMU's port, to decipher it in decades, and the exchange that is
            # made against that takes an emulated guest half the time of getting in.
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
    """What a program wrote into a file for its errors, in parentheses."""
    with suppress(OSError):
        text = file.read_text(errors="replace").strip()
        return f" ({' | '.join(text.splitlines())})" if text else ""
    return ""
