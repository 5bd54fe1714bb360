"""The guests in a cluster's VMs: waiting until they have booted and accept connections.

The guests boot at the same time, because all VMs are started before the first wait.
"""

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.guest_ssh import GuestSsh, end_guest_ssh
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.parallel import run_parallel
from vicinal.cluster.nodes.vm.vm import Vm, write_commands
from vicinal.cluster.plan.resource import Condition, Observation, Undemanding
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import console_lines, consoles_directory
from vicinal.cluster.vm.image.layout import READY_LINE


@dataclass(frozen=True)
class GuestsResource(Undemanding):
    """All guests of a cluster."""

    KIND: ClassVar[str] = "guests"

    vms: tuple[Vm, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(f"vm/{vm.name}" for vm in self.vms)

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        """Check that all guests have booted; absent if no command has waited for them yet."""
        if not self._files.entered.exists():
            return Observation(Condition.ABSENT)
        for vm in self.vms:
            if not GuestSsh(vm).alive:
                return Observation(Condition.STOPPED, f"{vm.name} does not run")
            if not _has_booted(vm):
                return Observation(Condition.STOPPED, f"{vm.name} is booting")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Wait until all guests have booted and accept connections.

        Raises VicinalError for the first guest that does not, with the last lines of its console.
        """
        self._files.entered.touch()
        seconds = BOOT_SECONDS * Made.read(self._files).accelerator.patience
        run_parallel(partial(self._wait, vm, seconds) for vm in self.vms)
        for vm in self.vms:
            write_commands(vm, first=False)

    def start(self) -> None:
        """Resume restored VMs, and wait for all guests as create() does."""
        from vicinal.cluster.vm.libvirt.lifecycle import resume

        for vm in self.vms:
            resume(hypervisor_at(vm.uri), vm.domain)
        self.create()

    def stop(self) -> None:
        """Close the connections to the guests."""
        for vm in self.vms:
            end_guest_ssh(vm)

    def remove(self) -> None:
        """Close the connections to the guests; the guests end with their VMs."""
        self.stop()
        self._files.entered.unlink(missing_ok=True)

    @property
    def _files(self) -> Files:
        return self.vms[0].files

    @staticmethod
    def _wait(vm: Vm, seconds: float) -> None:
        # Imported here, so that clusters without VMs need no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import wait_until_booted

        try:
            hypervisor = hypervisor_at(vm.uri)
            if not _has_booted(vm):
                wait_until_booted(hypervisor, vm.domain, vm.console, seconds)
            GuestSsh(vm).connect(seconds)
        except VicinalError as error:
            # The rollback that follows removes the console's file.
            kept = _keep_console(vm)
            raise VicinalError(error.message, f"read the whole console in {kept}") from error


def _has_booted(vm: Vm) -> bool:
    return vm.saved.exists() or any(READY_LINE in line for line in console_lines(vm.console))


def _keep_console(vm: Vm) -> Path:
    kept = consoles_directory() / f"{vm.domain}.log"
    try:
        shutil.copyfile(vm.console, kept)
    except OSError:
        return vm.console
    return kept
