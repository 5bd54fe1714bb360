"""A guest's QEMU from its start until the guest has its identity, by booting or from a snapshot.

Monitor talks to QEMU by the machine protocol (QMP), over a socket that QEMU inherits at its start.
"""

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import FileRegion, OpenEnd, virtio_card
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import guest_error
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.guest.shell import GuestShell, complaints
from vicinal.cluster.vm.qemu.command_line import OpenMemory
from vicinal.cluster.vm.snapshot.hardware import PassedVfs, SnapshotHardware, Sockets
from vicinal.cluster.vm.snapshot.store import Snapshot

_ANSWER_SECONDS = 60.0
_POLL_SECONDS = 0.02
_SEED_BYTES = 64
_END_SECONDS = 10.0
_WAITS = b"waits\n"


@dataclass(frozen=True)
class Plugged:
    """What one guest gets of its own while it runs."""

    region: Path | None
    """The file of a region that was created for guests."""
    cards: Sequence[str]
    """Hardware addresses of its cards; each card is joined to the wire with the same index."""
    mtu: int | None = None
    """Maximum packet size of the cards' network; None: Ethernet's default."""
    vfs: PassedVfs = ()


class WaitingGuest:
    """One guest. QEMU's files are in `directory`; the guest ends with the thread that starts it."""

    def __init__(self, name: str, directory: Path, keys: Keys, hardware: SnapshotHardware) -> None:
        self.name = name
        self.shell = GuestShell(
            name, directory, keys, alive=lambda _lost: self.alive, failure=self.failure
        )
        self._hardware = hardware
        self._console = directory / f"{name}.console"
        self._errors = directory / f"{name}.errors"
        self._archive = keys.archive(name)
        self._restored = False
        self._identity: socket.socket | None = None
        self._monitor: Monitor | None = None
        self._qemu: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> int:
        """The process number of QEMU, once it was started."""
        assert self._qemu is not None
        return self._qemu.pid

    @property
    def alive(self) -> bool:
        """Whether QEMU runs."""
        return self._qemu is not None and self._qemu.poll() is None

    def boot(self, ends: Sequence[OpenEnd] = (), memory: int | None = None) -> None:
        """Boot the guest, with its memory in an open file if `memory` is given."""
        self._start(OpenMemory(memory, is_shared=True), ends)

    def wait_booted(self) -> None:
        """Wait until the guest waits for its identity. Raises VicinalError if it does not boot."""
        if self._restored:
            return
        assert self._identity is not None
        identity = self._identity
        identity.settimeout(self._seconds)
        said = b""
        while said != _WAITS:
            try:
                some = identity.recv(len(_WAITS) - len(said))
            except TimeoutError:
                raise self.failure(f"it did not boot within {self._seconds:.0f} s") from None
            except OSError:
                some = b""
            if not some or not _WAITS.startswith(said + some):
                raise self.failure("it did not boot")
            said += some

    def restore(self, snapshot: Snapshot, ends: Sequence[OpenEnd] = ()) -> None:
        """Start the guest from a snapshot, whose memory it maps privately."""
        self._restored = True
        self._start(OpenMemory(snapshot.memory), ends, "-S", "-incoming", "defer")
        os.lseek(snapshot.state, 0, os.SEEK_SET)
        self._ask().migrate("migrate-incoming", snapshot.state)

    def save(self, state: int) -> None:
        """Save all state except the memory, which has its own file, and end the guest."""
        monitor = self._ask()
        monitor.ask("stop")
        monitor.migrate("migrate", state)
        monitor.ask("quit")
        assert self._qemu is not None
        self._qemu.wait(_END_SECONDS)
        self.stop()

    def tell(self, plugged: Plugged) -> None:
        """Plug in the guest's own devices, and send its identity. The guest then continues."""
        monitor = self._ask()
        if plugged.region is not None:
            for option in FileRegion(plugged.region, plugged.region.stat().st_size).options():
                monitor.ask(*option.request)
        for number, mac in enumerate(plugged.cards):
            monitor.ask(*virtio_card(f"wire{number}", mac, plugged.mtu).request)
        for vf in plugged.vfs:
            try:
                monitor.ask("device_add", vf.device)
            except VicinalError as error:
                raise VicinalError(
                    f"guest {self.name} did not get {vf.address} ({error.message})",
                    "check that the user may open its group in /dev/vfio, and may lock as much "
                    "memory as the guest has (ulimit -l)",
                ) from error
        monitor.ask("cont")
        archive = self._archive.read_bytes()
        has_region = int(plugged.region is not None)
        seed = secrets.token_hex(_SEED_BYTES)
        assert self._identity is not None
        try:
            line = f"{len(archive)} {int(time.time())} {has_region} {seed}\n"
            self._identity.sendall(line.encode() + archive)
        except OSError as error:
            raise self.failure("it did not receive its identity") from error
        self.shell.begin(self._seconds)

    def wait_ready(self) -> None:
        """Wait until commands can run in the guest. Raises VicinalError if that fails."""
        self.shell.connect(self._seconds)

    def stop(self) -> None:
        """End the guest at once. Further calls have no effect."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
        self.shell.close()
        if self._monitor is not None:
            self._monitor.close()
        if self._identity is not None:
            self._identity.close()

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with the guest, and how its console ends."""
        complaint = self.shell.complaint
        if not self.alive:
            what, complaint = "QEMU ended", complaints(self._errors)
        return guest_error(
            f"guest {self.name}: {what}{complaint}",
            self._console,
            "check that memory suffices, and whether `vicinal guests demo` works on this host",
        )

    @property
    def _seconds(self) -> float:
        """Time limit for booting, and again for connecting."""
        return BOOT_SECONDS * self._hardware.accelerator.patience

    def _start(self, memory: OpenMemory, ends: Sequence[OpenEnd], *how: str) -> None:
        """Start QEMU, with the host's end of the port that brings the guest its identity."""
        self._identity, identity = socket.socketpair()
        end, monitor = socket.socketpair()
        sockets = Sockets(monitor.fileno(), identity.fileno(), self.shell.control)
        guest = self._hardware.guest(self.name, self._console, sockets, memory, ends)
        with identity, monitor, self._errors.open("wb") as errors:
            self._qemu = subprocess.Popen(
                [*guest.command(self._hardware.qemu), *how],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=guest.files,
                start_new_session=True,
            )
        try:
            self._monitor = Monitor(end)
        except VicinalError as error:
            # A QEMU that ends first closes its sockets, and its exit status follows later.
            with suppress(subprocess.TimeoutExpired):
                self._qemu.wait(_END_SECONDS)
            raise self.failure("QEMU did not answer") from error

    def _ask(self) -> "Monitor":
        assert self._monitor is not None
        return self._monitor


class Monitor:
    """The connection to one QEMU. Methods raise VicinalError if QEMU ended, or refuses."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.settimeout(_ANSWER_SECONDS)
        self._read = end.makefile("rb")
        try:
            self._line()  # its greeting
            self.ask("qmp_capabilities")
        except VicinalError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; QEMU runs on."""
        self._read.close()
        self._socket.close()

    def ask(self, command: str, arguments: Mapping[str, object] | None = None, *files: int) -> Any:
        """Make QEMU execute a command, passing it open files; returns QEMU's answer."""
        text = json.dumps({"execute": command, "arguments": arguments or {}}).encode() + b"\n"
        try:
            socket.send_fds(self._socket, [text], files)
        except OSError as error:
            raise self._silent(command) from error
        while "return" not in (answer := self._line(command)):
            if "error" in answer:
                raise VicinalError(
                    f"QEMU refuses {command}: {answer['error'].get('desc')}",
                    "use a tested release of QEMU: docs/how-to/images.md",
                )
        return answer["return"]

    def migrate(self, command: str, file: int) -> None:
        """Save the VM's state to an open file (`migrate`), or load it from there."""
        capability = {"capability": "x-ignore-shared", "state": True}
        self.ask("migrate-set-capabilities", {"capabilities": [capability]})
        self.ask("getfd", {"fdname": "state"}, file)
        self.ask(command, {"uri": "fd:state"})
        deadline = time.monotonic() + _ANSWER_SECONDS
        while (status := self.ask("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise VicinalError(
                    f"QEMU's {command} did not complete ({status})",
                    "check that there is room on disk, and try again",
                )
            time.sleep(_POLL_SECONDS)

    def _line(self, command: str = "its greeting") -> dict[str, Any]:
        try:
            answer = json.loads(self._read.readline())
        except (OSError, ValueError) as error:
            raise self._silent(command) from error
        if not isinstance(answer, dict):
            raise self._silent(command)
        return answer

    @staticmethod
    def _silent(command: str) -> VicinalError:
        return VicinalError(
            f"QEMU did not answer {command}", "check that memory suffices, and try again"
        )
