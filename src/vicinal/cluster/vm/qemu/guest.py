"""One guest: a QEMU process, its console, and commands in the guest as its user."""

import subprocess
from contextlib import suppress
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import consoles_directory, guest_error
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.guest.shell import GuestShell, complaints
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.qemu.command_line import QemuGuest

_LOST_SECONDS = 2.0


class Guest(GuestShell):
    """A guest that is starting, running or stopped. QEMU ends with the thread that starts it."""

    def __init__(self, name: str, directory: Path, keys: Keys) -> None:
        super().__init__(name, directory, keys, alive=self._still_alive, failure=self.failure)
        self.console = consoles_directory() / f"{name}.log"
        self._qemu_errors = directory / f"{name}.errors"
        self._qemu: subprocess.Popen[bytes] | None = None
        self._accelerator = Accelerator.TCG

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
        with self._qemu_errors.open("wb") as errors:
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
        self.connect(BOOT_SECONDS * self._accelerator.patience)

    def kill(self) -> None:
        """End the guest at once, as after a power failure."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()

    def stop(self) -> None:
        """End the guest and the connection to it. Further calls have no effect."""
        self.kill()
        self.close()

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with this guest, and how its console ends."""
        complaint = self.complaint
        if not self.alive:
            what, complaint = "QEMU ended", complaints(self._qemu_errors)
        return guest_error(f"guest {self.name}: {what}{complaint}", self.console)

    def _still_alive(self, lost: bool) -> bool:
        """Whether QEMU runs, asked a moment later if the connection to the guest was lost."""
        if lost and self._qemu is not None:
            with suppress(subprocess.TimeoutExpired):  # most likely QEMU is about to end
                self._qemu.wait(_LOST_SECONDS)
        return self.alive
