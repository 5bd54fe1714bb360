"""Running commands in a guest, whatever the way into it is."""

import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from vicinal.base.errors import VicinalError

SSH_FAILED = 255
"""Exit status by which ssh tells that it was not the command that failed."""

BOOT_SECONDS = 60.0
"""For a guest with KVM; with TCG it is some times longer."""

_ENDING_SECONDS = 5
"""How long a command may take to end after it was told to."""


class GuestCommands(Protocol):
    """What can be done in a guest once there is a way to run a command in it."""

    name: str
    """The guest's host name."""

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        """The command line on this host that runs a command in the guest as its user."""

    def is_lost(self, status: int) -> bool:
        """Whether it was the way in that ended with this status, and not the command."""

    def failure(self, what: str) -> VicinalError:
        """The error that says what is wrong with the guest."""

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
            raise self.failure(f"it did not answer for {timeout + BOOT_SECONDS:.0f} s") from error
        if self.is_lost(done.returncode):
            raise self.failure("the connection to it was lost")
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
            raise self.failure(f"{source} could not be put into it: {done.stderr.strip()}")
