"""This host in the move of a machine, as its source or as its destination."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import check_bridge
from vicinal.cluster.nodes.vm import ranks
from vicinal.cluster.nodes.vm.guest_ssh import QUIET_SECONDS, check_unused, end_guest_ssh
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.layout import Made
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import SharedRegion
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.region import inspect

# Imported later, because a cluster without virtual machines needs no libvirt.
if TYPE_CHECKING:
    from vicinal.cluster.vm.libvirt.connection import Hypervisor
    from vicinal.cluster.vm.libvirt.side import Side


@dataclass(frozen=True)
class LocalMigrationHost:
    """This host in the move of a machine that runs here, or will run here."""

    machine: Machine

    @property
    def domain(self) -> str:
        """The machine's name in libvirt."""
        return self.machine.domain

    @property
    def accelerator(self) -> Accelerator:
        """What executes machines on this host. Raises VicinalError if the cluster has none here."""
        return Made.read(self.machine.files).accelerator

    def check_leaves(self) -> None:
        """Raise VicinalError if the machine cannot leave this host now."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        machine = self.machine
        state = observe(self._hypervisor, machine.domain)
        if state is not DomainState.RUNNING:
            raise VicinalError(
                f"{machine.name} does not run, its state is {state}",
                "resume it first: `vicinal start`",
            )
        if machine.region is not None and machine.region_device != RegionDevice.IVSHMEM:
            raise VicinalError(
                f"{machine.name} has its region as {machine.region_device}, which a running "
                "machine cannot give up",
                "set region.device to ivshmem-plain",
            )
        if machine.device is not None:
            raise VicinalError(
                f"{machine.name} has the device {machine.device}, which belongs to this host",
                "give its node a function instead, which other hosts can replace",
            )
        if machine.bridge is None and machine.peers:
            raise VicinalError(
                f"wires join {machine.name} to other machines, and wires end on this host",
                "connect the machines by a bridge",
            )
        if machine.link is not None and machine.link.tap is not None:
            raise VicinalError(
                f"{machine.name} uses the tap {machine.link.tap}, which belongs to this host",
                "use a bridge that the other host has too",
            )
        check_unused(machine)

    def check_comes(self) -> None:
        """Raise VicinalError if this host cannot receive the machine."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        machine = self.machine
        if observe(self._hypervisor, machine.domain) is not DomainState.ABSENT:
            raise VicinalError(
                f"a domain {machine.domain} exists already", "remove it, or choose another host"
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
                    f"{file} is missing, and {machine.name} boots it",
                    "choose a host that has machines of the same kind",
                )
        check_room([machine])

    def send_out(self, seconds: float) -> tuple[ranks.Endpoint, ...]:
        """Make the machine's ranks leave the region; see ranks.send_out()."""
        return ranks.send_out(self.machine, seconds=seconds)

    def close(self) -> None:
        """End the connections to the machine, because a moved guest does not notice their end."""
        end_guest_ssh(self.machine)
        time.sleep(QUIET_SECONDS)

    def call_back(self) -> None:
        """Let the machine's ranks return to the region; see ranks.call_back()."""
        ranks.call_back(self.machine)

    def await_back(self, whom: Collection[ranks.Endpoint], seconds: float) -> ranks.Return:
        """Wait until the ranks are in the region; see ranks.await_back()."""
        return ranks.await_back(self.machine, whom, seconds=seconds)

    def side(self) -> "Side":
        """What the machine's domain has on this host, without functions."""
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
        """The bridge of the machines' own network, and the bridge of the host's network, if any."""
        link = self.machine.link
        named = (self.machine.bridge, None if link is None else link.bridge)
        return [bridge for bridge in named if bridge is not None]

    @property
    def _hypervisor(self) -> "Hypervisor":
        return hypervisor_at(self.machine.uri)

    @property
    def _region_file(self) -> Path | None:
        return ranks.region_of(self.machine)
