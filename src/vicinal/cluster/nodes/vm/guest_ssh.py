"""The host's ssh connection to a virtual machine of a cluster, which outlives the command.

A machine's virtio port accepts one connection at a time. So the first command that needs the port
starts an ssh that stays and multiplexes later commands (ssh's ControlMaster). It ends with the
guest, or when a command stops, saves, moves or removes the machine.
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
"""Time for a guest to notice the end of the host's connection, which nothing announces."""

_CHECK_SECONDS = 10.0
_END_SECONDS = 5.0


class GuestSsh(GuestShell):
    """Runs commands as the machine's user in a machine that runs."""

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
        # Imported here, because a cluster without virtual machines needs no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        if not has_machines(self.machine.uri):
            return False
        state = observe(hypervisor_at(self.machine.uri), self.machine.domain)
        return state is DomainState.RUNNING

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with this machine, and how its console ends."""
        tail = " | ".join(console_tail(self.machine.console)) or "nothing"
        return VicinalError(
            f"{self.name}: {what}{self.complaint}; its console ends with: {tail}",
            f"see the whole console in {self.machine.console}",
        )

    def enter(self) -> None:
        """Ensure a connection. Raises VicinalError if the machine does not run or answer."""
        if not self.alive:
            raise VicinalError(f"{self.name} does not run", START)
        self.connect(BOOT_SECONDS * Made.read(self.machine.files).accelerator.patience)

    def connect(self, seconds: float) -> None:
        """Wait until commands can run in the machine, by the present connection or a new one."""
        with self._alone():
            if not self._connected():
                end_guest_ssh(self.machine)
                try:
                    super().connect(seconds)
                except VicinalError:
                    # A machine that was moved may still believe in the former connection, and take
                    # the first bytes of this one for the end of the former.
                    if not self.alive:
                        raise
                    self.close()
                    time.sleep(QUIET_SECONDS)
                    super().connect(seconds)

    def close(self) -> None:
        """End the connection, also if another command started it."""
        super().close()
        end_guest_ssh(self.machine)

    def _ssh_prefix(self) -> Sequence[str]:
        return ()  # the connection stays when this process ends

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
        """Prevent other commands from opening the port at the same time."""
        file = self._master.with_suffix(".lock")
        held = os.open(file, OWN_FILE | os.O_CLOEXEC, 0o600)
        try:
            take_lock(held, wait=True)
            yield
        finally:
            os.close(held)


def end_guest_ssh(machine: Machine) -> None:
    """End the connection to a machine, if there is one, and wait until it has ended."""
    master = machine.files.master(machine.number)
    option = f"ControlPath={master}"
    connections = processes_with(lambda words: option in words and "-M" in words)
    end_all(connections, gentle_seconds=_END_SECONDS, seconds=_END_SECONDS)
    master.unlink(missing_ok=True)


def check_unused(machine: Machine) -> None:
    """Raise VicinalError if a command of this host runs in the machine: it would be cut off."""
    option = f"ControlPath={machine.files.master(machine.number)}"
    is_command = {"-M", "-O"}.isdisjoint
    for process in processes_with(lambda words: option in words and is_command(words)):
        raise VicinalError(
            f"a command of this host runs in {machine.name}, and would be cut off: "
            f"{process.info['cmdline'][-1][:60]}",
            "wait until it ends, or end it; run lasting commands in the machine's background",
        )
