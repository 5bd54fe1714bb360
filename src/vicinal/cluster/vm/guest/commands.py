"""Running commands in a guest, independent of the connection to it."""

import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from vicinal.base.errors import VicinalError

SSH_FAILED = 255
"""Exit status by which ssh reports its own failure instead of the command's."""

BOOT_SECONDS = 60.0
"""Time limit for booting with KVM; TCG multiplies it by Accelerator.patience."""

_ENDING_SECONDS = 5
"""Time for a command to end after it received SIGTERM."""


class GuestCommands(Protocol):
    """What a guest offers as soon as the host can run commands in it."""

    name: str
    """The guest's host name."""

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        """The command line on this host that runs a command in the guest as its user."""

    def is_lost(self, status: int) -> bool:
        """Whether this exit status means that the connection ended instead of the command."""

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with the guest."""

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the guest's user, and end it there after `timeout` seconds.

        Returns the result with any exit status. Raises VicinalError if the command takes longer, or
        if the guest ended or does not answer.
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
        # Not every `timeout` program reports by its exit status that it ended the command.
        if done.returncode != 0 and time.monotonic() - began > timeout:
            raise VicinalError(
                f"`{shlex.join(command)[:200]}` in {self.name} took longer than {timeout:g} s",
                "allow more time",
            )
        return done

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file of this host into the guest, to a path where the guest's user may write."""
        quoted = shlex.quote(target)
        mode = "755" if source.stat().st_mode & 0o111 else "644"
        script = f"cat >{quoted}.part && chmod {mode} {quoted}.part && mv {quoted}.part {quoted}"
        with source.open("rb") as content:
            done = self.run(["sh", "-c", script], stdin=content)
        if done.returncode != 0:
            raise self.failure(f"{source} could not be copied into it: {done.stderr.strip()}")
