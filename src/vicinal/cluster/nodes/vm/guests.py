"""The virtual machines of a running cluster, as the launcher of a job uses them."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.job_nodes import Launchers, check_running
from vicinal.cluster.nodes.own_region import OwnRegion
from vicinal.cluster.nodes.vm.guest_ssh import GuestSsh
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.local_guests import LocalGuests
from vicinal.cluster.nodes.vm.parallel import run_parallel
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob


class VmImage:
    """The contents of the image that the VMs booted."""

    def __init__(self, files: Files) -> None:
        self._holds = [Path(each) for each in Made.read(files).holds]
        self._made = files.system.stat().st_mtime

    def has(self, path: Path) -> bool:
        """Whether a file of this host is in the VMs with its present contents."""
        inside = any(path.is_relative_to(directory) for directory in self._holds)
        return inside and path.stat().st_mtime <= self._made


class VmGuests(LocalGuests[GuestSsh]):
    """All VMs of a cluster on this host, in order; implements OwnNodes and JobGuests."""

    network = GuestNetwork.VIRTIO

    def __init__(self, name: str, vms: Sequence[Vm], region: Path | None) -> None:
        super().__init__([GuestSsh(vm) for vm in vms], [] if region is None else [region])
        self._name = name
        self._region = OwnRegion(region)

    @cached_property
    def image(self) -> VmImage:
        """The image that the VMs booted."""
        return VmImage(self.guests[0].vm.files)

    def has(self, node: str) -> bool:
        return any(guest.name == node for guest in self.guests)

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        for guest in self.guests:
            if guest.name == node:
                guest.enter()
                return guest.command(command, {}, tty=tty)
        raise VicinalError(f"the cluster {self._name} has no node {node!r}", "see `vicinal status`")

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        check_running(self._name, self.ended_nodes(), len(self.guests))
        return launchers.in_first_guest(job, self)

    @property
    def alone(self) -> frozenset[str]:
        """Names of the VMs without a network with other VMs."""
        vms = [guest.vm for guest in self.guests]
        return frozenset(each.name for each in vms if not each.peers)

    def enter(self) -> None:
        """Connect to each VM. Raises VicinalError if a VM does not run."""
        run_parallel(guest.enter for guest in self.guests)

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError if the region has no room for this number of ranks, or no heap."""
        self._region.check_room(ranks, heap=heap)

    def close(self) -> None:
        """Do nothing: the connections stay open for the next command."""
