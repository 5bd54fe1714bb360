"""The host's way into a guest: ssh over a virtio port, whoever runs the guest's QEMU."""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import vicinal
from vicinal.cluster.guest_keys import Keys
from vicinal.cluster.guest_qemu import dies_with_parent
from vicinal.cluster.image_layout import USER
from vicinal.errors import VicinalError

SSH_FAILED = 255
"""Exit status by which ssh tells that it was not the command that failed."""

BOOT_SECONDS = 60.0
"""For a guest with KVM; with TCG it is some times longer."""

_FIRST_SECONDS = 20.0
"""How long the first of our attempts to get in may take, the next one twice as long."""
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
_ENDING_SECONDS = 5
"""How long a command may take to end after it was told to."""


class GuestShell:
    """Runs commands in a guest as its user.

    `name` is the guest's host name, `directory` where sockets are. `alive` is asked whether the
    guest still runs, with True if the connection was lost just now; `failure` makes the error
    that says what is wrong with the guest. The connection ends with the thread that made it.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        keys: Keys,
        *,
        alive: Callable[[bool], bool],
        failure: Callable[[str], VicinalError],
    ) -> None:
        self.name = name
        self.control = directory / f"{name}.port"
        """Socket of the virtio port, which QEMU opens."""
        self._keys = keys
        self._alive = alive
        self._failure = failure
        self._errors = directory / f"{name}.ssh-errors"
        self._master = directory / f"{name}.ssh"
        self._connection: subprocess.Popen[bytes] | None = None

    @property
    def complaint(self) -> str:
        """What ssh wrote about the connection, in parentheses; empty if nothing."""
        return complaints(self._errors)

    def connect(self, seconds: float) -> None:
        """Wait until commands can be run in the guest.

        Raises VicinalError, by `failure`, if that takes longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        self._master.unlink(missing_ok=True)  # of one that was killed
        self._wait_for(self.control, deadline, f"QEMU did not open a port within {seconds:.0f} s")
        patience = _FIRST_SECONDS
        while not self._try(min(deadline, time.monotonic() + patience), seconds):
            if time.monotonic() > deadline:
                raise self._failure(f"it did not let us in within {seconds:.0f} s")
            # A guest that was saved or moved may take us for whom it talked to before: to see that
            # connection end, it must see this one end.
            self.close()
            patience *= 2

    def command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command line on this host that runs a command in the guest as its user."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        inside = shlex.join(["env", *variables, *command] if variables else command)
        return ["ssh", "-T", *self._ssh_options(_STOP_SECONDS), self.name, "--", inside]

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the guest's user; it is ended there after `timeout` seconds.

        Returns whatever its exit status is. Raises VicinalError if the time was not enough,
        or if the guest is gone or does not answer.
        """
        began = time.monotonic()
        bounded = ["timeout", "-k", str(_ENDING_SECONDS), str(int(timeout) + 1), *command]
        try:
            done = subprocess.run(
                self.command(bounded, environment or {}),
                stdin=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout + BOOT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"it did not answer for {timeout + BOOT_SECONDS:.0f} s") from error
        if done.returncode == SSH_FAILED and not self._master.exists():
            raise self._failure("the connection to it was lost")
        # Not every `timeout` tells by its status that it was the time that ended a command.
        if done.returncode != 0 and time.monotonic() - began > timeout:
            raise VicinalError(
                f"`{shlex.join(command)[:200]}` in {self.name} took longer than {timeout:g} s",
                "allow it more time",
            )
        return done

    def copy_in(self, source: Path, target: str) -> None:
        """Put a file of this host into the guest, where the guest's user may write."""
        quoted = shlex.quote(target)
        mode = "755" if source.stat().st_mode & 0o111 else "644"
        script = f"cat >{quoted}.part && chmod {mode} {quoted}.part && mv {quoted}.part {quoted}"
        with source.open("rb") as content:
            done = self.run(["sh", "-c", script], stdin=content)
        if done.returncode != 0:
            raise self._failure(f"{source} could not be put into it: {done.stderr.strip()}")

    def close(self) -> None:
        """End the connection; may be called again."""
        if self._connection is not None:
            self._connection.terminate()
            try:
                self._connection.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._connection.kill()
                self._connection.wait()

    def _try(self, until: float, seconds: float) -> bool:
        """Start ssh; whether it got in before the time `until`."""
        with self._errors.open("wb") as errors:
            self._connection = subprocess.Popen(
                [*dies_with_parent(), "ssh", "-N", "-M", *self._ssh_options(seconds), self.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        while not self._master.exists():
            lost = self._connection.poll() is not None
            if not self._alive(lost) or lost:
                raise self._failure("it did not let us in")
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _wait_for(self, path: Path, deadline: float, complaint: str) -> None:
        while not path.exists():
            if not self._alive(False) or time.monotonic() > deadline:
                raise self._failure(complaint)
            time.sleep(_POLL_SECONDS)

    def _ssh_options(self, seconds: float) -> list[str]:
        package = Path(vicinal.__file__).resolve().parent.parent
        module = "vicinal.cluster.guest_connection"
        proxy = ["env", f"PYTHONPATH={package}", sys.executable, "-P", "-m", module]
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(int(seconds)),
            "ControlPath": str(self._master),
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self._keys.user),
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
