"""What this host does for the move of a machine: it gives it away, or takes it in."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import check_bridge
from vicinal.cluster.nodes.vm import ranks
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.layout import Made
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.nodes.vm.way_in import QUIET_SECONDS, check_unused, end_way_in
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import SharedRegion
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.region import inspect

# Loaded where machines are: whoever has none needs no libvirt.
if TYPE_CHECKING:
    from vicinal.cluster.vm.libvirt.connection import Hypervisor
    from vicinal.cluster.vm.libvirt.side import Side


@dataclass(frozen=True)
class LocalPart:
    """This host's part in the move of a machine, which is as it is, or is to be, here."""

    machine: Machine

    @property
    def domain(self) -> str:
        """The machine's name in libvirt."""
        return self.machine.domain

    @property
    def accelerator(self) -> Accelerator:
        """What executes machines here. Raises VicinalError where the cluster has none here."""
        return Made.read(self.machine.files).accelerator

    def check_leaves(self) -> None:
        """Raise VicinalError where the machine cannot leave this host now."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        machine = self.machine
        state = observe(self._hypervisor, machine.domain)
        if state is not DomainState.RUNNING:
            raise VicinalError(
                f"{machine.name} does not run, it is {state}", "let it go on first: `vicinal start`"
            )
        if machine.region is not None and machine.region_device != RegionDevice.IVSHMEM:
            raise VicinalError(
                f"{machine.name} has its region as {machine.region_device}, which cannot be taken "
                "from a machine that runs",
                "let region.device be ivshmem-plain",
            )
        if machine.device is not None:
            raise VicinalError(
                f"{machine.name} has the device {machine.device}, which is this host's",
                "give its node a function instead, of which other hosts have some",
            )
        if machine.bridge is None and machine.peers:
            raise VicinalError(
                f"{machine.name} is joined with the others by wires, which end on this host",
                "let the machines be at a bridge",
            )
        if machine.link is not None and machine.link.tap is not None:
            raise VicinalError(
                f"{machine.name} is at the tap {machine.link.tap}, which is this host's",
                "let it be at a bridge, which the other host has too",
            )
        check_unused(machine)

    def check_comes(self) -> None:
        """Raise VicinalError where the machine cannot be taken in."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        machine = self.machine
        if observe(self._hypervisor, machine.domain) is not DomainState.ABSENT:
            raise VicinalError(
                f"there is a domain {machine.domain} already", "remove it, or choose another host"
            )
        for bridge in self._bridges:
            check_bridge(bridge)
        if self._region_file is not None:
            inspect(self._region_file, patience=0)
        files = machine.files
        system = files.system_with(machine.additions_key)
        for file in (files.kernel, system, files.keys.archive(machine.name)):
            if not file.exists():
                raise VicinalError(
                    f"{file}, which {machine.name} boots, is not there",
                    "choose a host that has machines of the same kind",
                )
        check_room([machine])

    def send_out(self, seconds: float) -> tuple[ranks.Endpoint, ...]:
        """Have its ranks leave the region: ranks.send_out()."""
        return ranks.send_out(self.machine, seconds=seconds)

    def close(self) -> None:
        """End the connections to it: a guest that moves does not see that they end."""
        end_way_in(self.machine)
        time.sleep(QUIET_SECONDS)

    def call_back(self) -> None:
        """Let its ranks come back to the region: ranks.call_back()."""
        ranks.call_back(self.machine)

    def await_back(self, whom: Collection[ranks.Endpoint], seconds: float) -> ranks.Return:
        """Wait until they are in the region: ranks.await_back()."""
        return ranks.await_back(self.machine, whom, seconds=seconds)

    def side(self) -> "Side":
        """What its domain has here, but for functions."""
        from vicinal.cluster.vm.libvirt.side import Side

        machine = self.machine
        file = self._region_file
        return Side(
            self._hypervisor,
            region=None if file is None else SharedRegion(file.name, file.stat().st_size),
            placement=machine.placement,
            names=(machine.directory, *self._bridges),
        )

    @property
    def _bridges(self) -> list[str]:
        """Of the machines' own network, and of one of the host's."""
        link = self.machine.link
        named = (self.machine.bridge, None if link is None else link.bridge)
        return [bridge for bridge in named if bridge is not None]

    @property
    def _hypervisor(self) -> "Hypervisor":
        return hypervisor_at(self.machine.uri)

    @property
    def _region_file(self) -> Path | None:
        return ranks.region_of(self.machine)
