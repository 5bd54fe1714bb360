"""One guest: a QEMU process, its console, and a way to run commands in it as its user."""

import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import vicinal
from vicinal.cluster.guest_console import console_tail, consoles_directory
from vicinal.cluster.guest_keys import Keys
from vicinal.cluster.guest_qemu import Accelerator, GuestDevices, dies_with_parent, guest_command
from vicinal.cluster.guest_qemu_choice import Qemu
from vicinal.cluster.image import GuestImage
from vicinal.cluster.image_layout import USER, guest_name
from vicinal.errors import VicinalError

SSH_FAILED = 255
"""Exit status by which ssh tells that it was not the command that failed."""

_BOOT_SECONDS = 60.0
"""For a guest with KVM; with TCG it is some times longer."""
_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
_LOST_SECONDS = 2.0
_ENDING_SECONDS = 5
"""How long a command may take to end after it was told to."""


class Guest:
    """A guest that is starting, running or stopped. Only its own thread may start it."""

    def __init__(self, number: int, directory: Path, keys: Keys) -> None:
        self.number = number
        self.name = guest_name(number)
        self.console = consoles_directory() / f"{self.name}.log"
        self._directory = directory
        self._keys = keys
        self._errors = directory / f"{self.name}.errors"
        self._connection_errors = directory / f"{self.name}.ssh-errors"
        self._qemu: subprocess.Popen[bytes] | None = None
        self._connection: subprocess.Popen[bytes] | None = None
        self._accelerator = Accelerator.TCG

    @property
    def control(self) -> Path:
        """Socket of the virtio port that the host gets in by."""
        return self._directory / f"{self.name}.port"

    @property
    def process(self) -> int:
        """Process id of QEMU."""
        if self._qemu is None:
            raise VicinalError(f"{self.name} was not started", "start it")
        return self._qemu.pid

    @property
    def alive(self) -> bool:
        """Whether QEMU runs."""
        return self._qemu is not None and self._qemu.poll() is None

    def start(
        self, qemu: Qemu, image: GuestImage, accelerator: Accelerator, devices: GuestDevices
    ) -> None:
        """Start QEMU; the guest boots while this returns."""
        self._accelerator = accelerator
        self.console.unlink(missing_ok=True)
        command = guest_command(
            qemu, self.name, self.number, image, accelerator, self.console, devices
        )
        with self._errors.open("wb") as errors:
            self._qemu = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=[wire for wire in (devices.network, devices.fabric) if wire is not None],
                start_new_session=True,  # Ctrl-C is for the manager, which stops guests in order
            )

    def wait_ready(self) -> None:
        """Wait until commands can be run in the guest.

        Raises VicinalError, with the end of its console, if it does not come up in time.
        """
        seconds = _BOOT_SECONDS * self._accelerator.patience
        deadline = time.monotonic() + seconds
        self._wait_for(self.control, deadline, f"QEMU did not open a port within {seconds:.0f} s")
        with self._connection_errors.open("wb") as errors:
            self._connection = subprocess.Popen(
                [*dies_with_parent(), "ssh", "-N", "-M", *self._ssh_options(seconds), self.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self._wait_for(self._master, deadline, f"it did not let us in within {seconds:.0f} s")

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
                timeout=timeout + _BOOT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self.failure(f"it did not answer for {timeout + _BOOT_SECONDS:.0f} s") from error
        if done.returncode == SSH_FAILED and not self._master.exists():
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

    def wait_end(self) -> None:
        """Wait until QEMU has ended."""
        if self._qemu is not None:
            self._qemu.wait()

    def kill(self) -> None:
        """End the guest at once, as if its power failed."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()

    def stop(self) -> None:
        """End the guest and the connection to it; may be called again."""
        self.kill()
        if self._connection is not None:
            self._connection.terminate()
            try:
                self._connection.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._connection.kill()
                self._connection.wait()

    def failure(self, what: str) -> VicinalError:
        """The error that says what is wrong with this guest, and how its console ends."""
        complaint = self._complaints(self._connection_errors)
        if not self.alive:
            what, complaint = "QEMU ended", self._complaints(self._errors)
        tail = " | ".join(console_tail(self.console)) or "nothing"
        return VicinalError(
            f"guest {self.name}: {what}{complaint}; its console ends with: {tail}",
            f"see all of it in {self.console}",
        )

    @staticmethod
    def _complaints(file: Path) -> str:
        """What a program wrote into a file for its errors, in parentheses."""
        with suppress(OSError):
            text = file.read_text(errors="replace").strip()
            return f" ({' | '.join(text.splitlines())})" if text else ""
        return ""

    @property
    def _master(self) -> Path:
        return self._directory / f"{self.name}.ssh"

    def _wait_for(self, path: Path, deadline: float, complaint: str) -> None:
        while not path.exists():
            lost = self._connection is not None and self._connection.poll() is not None
            if lost and self._qemu is not None:
                with suppress(subprocess.TimeoutExpired):  # most likely QEMU is just ending
                    self._qemu.wait(_LOST_SECONDS)
            if not self.alive or lost or time.monotonic() > deadline:
                raise self.failure(complaint)
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
