"""The host's ssh connection to a virtual machine of a cluster, which outlives the command.

A VM's virtio port accepts one connection at a time. So the first command that needs the port
starts an ssh that stays and multiplexes later commands (ssh's ControlMaster). It ends with the
guest, or when a command stops, saves, moves or removes the VM.
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
from vicinal.cluster.nodes.vm.hypervisor import has_vms, hypervisor_at
from vicinal.cluster.nodes.vm.layout import Made
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import guest_error
from vicinal.cluster.vm.guest.shell import GuestShell

QUIET_SECONDS = 2.0
"""Time for a guest to notice the end of the host's connection, which nothing announces."""

_CHECK_SECONDS = 10.0
_END_SECONDS = 5.0


class GuestSsh(GuestShell):
    """Runs commands as the VM's user in a VM that runs."""

    def __init__(self, vm: Vm) -> None:
        self.vm = vm
        files = vm.files
        super().__init__(
            vm.name,
            files.directory,
            files.keys,
            alive=lambda _: self.alive,
            failure=self.failure,
            stem=files.stem(vm.number),
        )

    @property
    def alive(self) -> bool:
        """Whether the VM runs."""
        # Imported here, because a cluster without virtual machines needs no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        if not has_vms(self.vm.uri):
            return False
        state = observe(hypervisor_at(self.vm.uri), self.vm.domain)
        return state is DomainState.RUNNING

    def failure(self, what: str) -> VicinalError:
        """An error that says what is wrong with this VM, and how its console ends."""
        return guest_error(f"{self.name}: {what}{self.complaint}", self.vm.console)

    def enter(self) -> None:
        """Ensure a connection. Raises VicinalError if the VM does not run or answer."""
        if not self.alive:
            raise VicinalError(f"{self.name} does not run", START)
        self.connect(BOOT_SECONDS * Made.read(self.vm.files).accelerator.patience)

    def connect(self, seconds: float) -> None:
        """Wait until commands can run in the VM, by the present connection or a new one."""
        with self._alone():
            if not self._connected():
                end_guest_ssh(self.vm)
                try:
                    super().connect(seconds)
                except VicinalError:
                    # A VM that was moved may still believe in the former connection, and take
                    # the first bytes of this one for the end of the former.
                    if not self.alive:
                        raise
                    self.close()
                    time.sleep(QUIET_SECONDS)
                    super().connect(seconds)

    def close(self) -> None:
        """End the connection, also if another command started it."""
        super().close()
        end_guest_ssh(self.vm)

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


def end_guest_ssh(vm: Vm) -> None:
    """End the connection to a VM, if there is one, and wait until it has ended."""
    master = vm.files.master(vm.number)
    option = f"ControlPath={master}"
    connections = processes_with(lambda words: option in words and "-M" in words)
    end_all(connections, gentle_seconds=_END_SECONDS, seconds=_END_SECONDS)
    master.unlink(missing_ok=True)


def check_unused(vm: Vm) -> None:
    """Raise VicinalError if a command of this host runs in the VM: it would be cut off."""
    option = f"ControlPath={vm.files.master(vm.number)}"
    is_command = {"-M", "-O"}.isdisjoint
    for process in processes_with(lambda words: option in words and is_command(words)):
        raise VicinalError(
            f"a command of this host runs in {vm.name}, and would be cut off: "
            f"{process.info['cmdline'][-1][:60]}",
            "wait until it ends, or end it; run lasting commands in the VM's background",
        )
