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
from vicinal.cluster.nodes.vm.machine import Machine, write_commands
from vicinal.cluster.nodes.vm.parallel import run_parallel
from vicinal.cluster.plan.resource import Condition, Observation, Undemanding
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.console import console_lines, consoles_directory
from vicinal.cluster.vm.image.layout import READY_LINE


@dataclass(frozen=True)
class GuestsResource(Undemanding):
    """All guests of a cluster."""

    KIND: ClassVar[str] = "guests"

    machines: tuple[Machine, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(f"machine/{machine.name}" for machine in self.machines)

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        """Check that all guests have booted; absent if no command has waited for them yet."""
        if not self._files.entered.exists():
            return Observation(Condition.ABSENT)
        for machine in self.machines:
            if not GuestSsh(machine).alive:
                return Observation(Condition.STOPPED, f"{machine.name} does not run")
            if not _has_booted(machine):
                return Observation(Condition.STOPPED, f"{machine.name} is booting")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Wait until all guests have booted and accept connections.

        Raises VicinalError for the first guest that does not, with the last lines of its console.
        """
        self._files.entered.touch()
        seconds = BOOT_SECONDS * Made.read(self._files).accelerator.patience
        run_parallel(partial(self._wait, machine, seconds) for machine in self.machines)
        for machine in self.machines:
            write_commands(machine, first=False)

    def start(self) -> None:
        """Resume restored VMs, and wait for all guests as create() does."""
        from vicinal.cluster.vm.libvirt.lifecycle import resume

        for machine in self.machines:
            resume(hypervisor_at(machine.uri), machine.domain)
        self.create()

    def stop(self) -> None:
        """Close the connections to the guests."""
        for machine in self.machines:
            end_guest_ssh(machine)

    def remove(self) -> None:
        """Close the connections to the guests; the guests end with their VMs."""
        self.stop()
        self._files.entered.unlink(missing_ok=True)

    @property
    def _files(self) -> Files:
        return self.machines[0].files

    @staticmethod
    def _wait(machine: Machine, seconds: float) -> None:
        # Imported here, so that clusters without VMs need no libvirt.
        from vicinal.cluster.vm.libvirt.lifecycle import wait_until_booted

        try:
            hypervisor = hypervisor_at(machine.uri)
            if not _has_booted(machine):
                wait_until_booted(hypervisor, machine.domain, machine.console, seconds)
            GuestSsh(machine).connect(seconds)
        except VicinalError as error:
            # The rollback that follows removes the console's file.
            kept = _keep_console(machine)
            raise VicinalError(error.message, f"read the whole console in {kept}") from error


def _has_booted(machine: Machine) -> bool:
    return machine.saved.exists() or any(
        READY_LINE in line for line in console_lines(machine.console)
    )


def _keep_console(machine: Machine) -> Path:
    kept = consoles_directory() / f"{machine.domain}.log"
    try:
        shutil.copyfile(machine.console, kept)
    except OSError:
        return machine.console
    return kept
