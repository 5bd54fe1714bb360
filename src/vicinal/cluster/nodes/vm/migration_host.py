"""This host in the move of a VM, as its source or as its destination."""

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
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.nodes.vm.vm import Vm
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
    """This host in the move of a VM that runs here, or will run here."""

    vm: Vm

    @property
    def domain(self) -> str:
        """The VM's name in libvirt."""
        return self.vm.domain

    @property
    def accelerator(self) -> Accelerator:
        """What executes VMs on this host. Raises VicinalError if the cluster has none here."""
        return Made.read(self.vm.files).accelerator

    def check_leaves(self) -> None:
        """Raise VicinalError if the VM cannot leave this host now."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        vm = self.vm
        state = observe(self._hypervisor, vm.domain)
        if state is not DomainState.RUNNING:
            raise VicinalError(
                f"{vm.name} does not run, its state is {state}",
                "resume it first: `vicinal start`",
            )
        if vm.region is not None and vm.region_device != RegionDevice.IVSHMEM:
            raise VicinalError(
                f"{vm.name} has its region as {vm.region_device}, which a running "
                "VM cannot give up",
                "set region.device to ivshmem-plain",
            )
        if vm.device is not None:
            raise VicinalError(
                f"{vm.name} has the device {vm.device}, which belongs to this host",
                "give its node a VF instead, which other hosts can replace",
            )
        if vm.bridge is None and vm.peers:
            raise VicinalError(
                f"wires join {vm.name} to other VMs, and wires end on this host",
                "connect the VMs by a bridge",
            )
        if vm.link is not None and vm.link.tap is not None:
            raise VicinalError(
                f"{vm.name} uses the tap {vm.link.tap}, which belongs to this host",
                "use a bridge that the other host has too",
            )
        check_unused(vm)

    def check_comes(self) -> None:
        """Raise VicinalError if this host cannot receive the VM."""
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe

        vm = self.vm
        if observe(self._hypervisor, vm.domain) is not DomainState.ABSENT:
            raise VicinalError(
                f"a domain {vm.domain} exists already", "remove it, or choose another host"
            )
        for bridge in self._bridges:
            check_bridge(bridge)
        if self._region_file is not None:
            inspect(self._region_file, patience=0)
        files = vm.files
        system = files.system_with(vm.additions_key)
        for file in (files.kernel, system, files.keys.archive(vm.name)):
            if not file.exists():
                raise VicinalError(
                    f"{file} is missing, and {vm.name} boots it",
                    "choose a host that has VMs of the same kind",
                )
        check_room([vm])

    def send_out(self, seconds: float) -> tuple[ranks.Endpoint, ...]:
        """Make the VM's ranks leave the region; see ranks.send_out()."""
        return ranks.send_out(self.vm, seconds=seconds)

    def close(self) -> None:
        """End the connections to the VM, because a moved guest does not notice their end."""
        end_guest_ssh(self.vm)
        time.sleep(QUIET_SECONDS)

    def call_back(self) -> None:
        """Let the VM's ranks return to the region; see ranks.call_back()."""
        ranks.call_back(self.vm)

    def await_back(self, whom: Collection[ranks.Endpoint], seconds: float) -> ranks.Return:
        """Wait until the ranks are in the region; see ranks.await_back()."""
        return ranks.await_back(self.vm, whom, seconds=seconds)

    def side(self) -> "Side":
        """What the VM's domain has on this host, without VFs."""
        from vicinal.cluster.vm.libvirt.side import Side

        vm = self.vm
        file = self._region_file
        return Side(
            self._hypervisor,
            region=None if file is None else SharedRegion(file.name, file.stat().st_size),
            placement=vm.placement,
            names=(vm.directory, *self._bridges),
        )

    @property
    def _bridges(self) -> list[str]:
        """The bridge of the VMs' own network, and the bridge of the host's network, if any."""
        link = self.vm.link
        named = (self.vm.bridge, None if link is None else link.bridge)
        return [bridge for bridge in named if bridge is not None]

    @property
    def _hypervisor(self) -> "Hypervisor":
        return hypervisor_at(self.vm.uri)

    @property
    def _region_file(self) -> Path | None:
        return ranks.region_of(self.vm)
