"""The host's way into a cluster's virtual machines, which lasts from one command to the next.

A machine's virtio port takes one connection at a time. So the first command that needs it starts an
ssh that stays and lets others through (ssh's ControlMaster). It ends with the guest, or when the
machines are stopped, saved, moved or taken away.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vicinal.base.daemon import end_all, processes_with
from vicinal.base.errors import VicinalError
from vicinal.base.files import OWN_FILE, take_lock
from vicinal.cluster.nodes.job_nodes import START
from vicinal.cluster.nodes.vm.hypervisor import has_machines, hypervisor_at
from vicinal.cluster.nodes.vm.layout import Made
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import console_tail
from vicinal.cluster.vm.guest.shell import GuestShell

QUIET_SECONDS = 2.0
"""For a guest to see that the host's connection ended, of which nothing tells."""

_CHECK_SECONDS = 10.0
_END_SECONDS = 5.0


class WayIn(GuestShell):
    """Runs commands in a machine that runs, as its user."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        files = machine.files
        super().__init__(
            machine.name,
            files.directory,
            files.keys,
            alive=lambda _: self.alive,
            failure=self.failure,
            stem=files.stem(machine.number),
        )

    @property
    def alive(self) -> bool:
        """Whether the machine runs."""
        # Loaded here: whoever has no virtual machines needs no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        if not has_machines(self.machine.uri):
            return False
        state = observe(hypervisor_at(self.machine.uri), self.machine.domain)
        return state is DomainState.RUNNING

    def failure(self, what: str) -> VicinalError:
        """The error that says what is wrong with this machine, and how its console ends."""
        tail = " | ".join(console_tail(self.machine.console)) or "nothing"
        return VicinalError(
            f"{self.name}: {what}{self.complaint}; its console ends with: {tail}",
            f"see all of it in {self.machine.console}",
        )

    def enter(self) -> None:
        """See that there is a connection. Raises VicinalError, also where the machine is off."""
        if not self.alive:
            raise VicinalError(f"{self.name} does not run", START)
        self.connect(BOOT_SECONDS * Made.read(self.machine.files).accelerator.patience)

    def connect(self, seconds: float) -> None:
        """Wait until commands can be run in it: by the connection that is there, or a new one."""
        with self._alone():
            if not self._connected():
                end_way_in(self.machine)
                try:
                    super().connect(seconds)
                except VicinalError:
                    # One that was moved may take us for whom it talked to before, and see the first
                    # of our bytes for the end of theirs.
                    if not self.alive:
                        raise
                    self.close()
                    time.sleep(QUIET_SECONDS)
                    super().connect(seconds)

    def close(self) -> None:
        """End the connection, whoever began it."""
        super().close()
        end_way_in(self.machine)

    def _keeper(self) -> Sequence[str]:
        return ()  # it stays when this process ends

    def _connected(self) -> bool:
        if not self._master.exists():
            return False
        check = ["ssh", "-O", "check", *self._ssh_options(_CHECK_SECONDS), self.name]
        try:
            done = subprocess.run(
                check,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=_CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other commands from opening the port at the same time."""
        place = self._master.with_suffix(".lock")
        held = os.open(place, OWN_FILE | os.O_CLOEXEC, 0o600)
        try:
            take_lock(held, wait=True)
            yield
        finally:
            os.close(held)


def end_way_in(machine: Machine) -> None:
    """End the connection to a machine, if there is one, and wait until it has ended."""
    master = machine.files.master(machine.number)
    option = f"ControlPath={master}"
    connections = processes_with(lambda words: option in words and "-M" in words)
    end_all(connections, gentle_seconds=_END_SECONDS, seconds=_END_SECONDS)
    master.unlink(missing_ok=True)


def check_unused(machine: Machine) -> None:
    """Raise VicinalError where a command of this host runs in the machine: it would be cut off."""
    option = f"ControlPath={machine.files.master(machine.number)}"
    is_command = {"-M", "-O"}.isdisjoint
    for process in processes_with(lambda words: option in words and is_command(words)):
        raise VicinalError(
            f"a command of this host runs in {machine.name}, and would be cut off: "
            f"{process.info['cmdline'][-1][:60]}",
            "wait for its end, or end it; what is to last runs in the machine's background",
        )
