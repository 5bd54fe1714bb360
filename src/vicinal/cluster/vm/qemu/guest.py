"""One guest: a QEMU process, its console, and commands in the guest as its user."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import console_tail, consoles_directory
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.guest.shell import GuestShell, complaints
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.qemu.command_line import QemuGuest

_LOST_SECONDS = 2.0


class Guest:
    """A guest that is starting, running or stopped. QEMU ends with the thread that starts it."""

    def __init__(self, name: str, directory: Path, keys: Keys) -> None:
        self.name = name
        self.console = consoles_directory() / f"{self.name}.log"
        self._errors = directory / f"{self.name}.errors"
        self._qemu: subprocess.Popen[bytes] | None = None
        self._accelerator = Accelerator.TCG
        self._shell = GuestShell(
            self.name, directory, keys, alive=self._still_alive, failure=self.failure
        )

    @property
    def control(self) -> Path:
        """Socket of the virtio port by which the host connects."""
        return self._shell.control

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

    def start(self, qemu: Qemu, hardware: QemuGuest) -> None:
        """Start QEMU, and return while the guest boots."""
        self._accelerator = hardware.accelerator
        self.console.unlink(missing_ok=True)
        with self._errors.open("wb") as errors:
            self._qemu = subprocess.Popen(
                hardware.command(qemu),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=hardware.files,
                start_new_session=True,  # Ctrl-C reaches only the manager, which stops guests
            )

    def wait_ready(self) -> None:
        """Wait until commands can run in the guest.

        Raises VicinalError, with the end of its console, if the guest does not boot in time.
        """
        self._shell.connect(BOOT_SECONDS * self._accelerator.patience)

    def command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command line on this host that runs a command in the guest as its user."""
        return self._shell.command(command, environment)

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the guest's user; see GuestShell.run()."""
        return self._shell.run(command, environment=environment, timeout=timeout, stdin=stdin)

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file of this host into the guest, to a path where the guest's user may write."""
        self._shell.copy_in(source, target)

    def wait_end(self) -> None:
        """Wait until QEMU has ended."""
        if self._qemu is not None:
            self._qemu.wait()

    def kill(self) -> None:
        """End the guest at once, as after a power failure."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()

    def stop(self) -> None:
        """End the guest and the connection to it. Further calls have no effect."""
        self.kill()
        self._shell.close()

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with this guest, and how its console ends."""
        complaint = self._shell.complaint
        if not self.alive:
            what, complaint = "QEMU ended", complaints(self._errors)
        tail = " | ".join(console_tail(self.console)) or "nothing"
        return VicinalError(
            f"guest {self.name}: {what}{complaint}; its console ends with: {tail}",
            f"see the whole console in {self.console}",
        )

    def _still_alive(self, lost: bool) -> bool:
        """Whether QEMU runs, asked a moment later if the connection to the guest was lost."""
        if lost and self._qemu is not None:
            with suppress(subprocess.TimeoutExpired):  # most likely QEMU is about to end
                self._qemu.wait(_LOST_SECONDS)
        return self.alive
