"""The domain of a running VM: detaches the VM's resources of this host, and attaches them again.

OpenNebula created the domain and calls this driver, so the library for Vicinal's own domains may
change it. Ranks in the VM leave the region before, and may rejoin after. OpenNebula's drivers
cannot reach into the guest. So the driver asks the ranks through the region's file: the file has a
word for each member that only the host's manager writes (region/detaching.py).

Heartbeats tell the ranks of one VM from other ranks: members in VMs count ten times a second, and
members of a suspended VM do not. Host names are not enough, because VMs of one image may have the
same name.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import PciFunction, pci_function_address, set_pci_function_address
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_devices import (
    await_removal,
    detach_pci_function,
    detach_region,
    has_region,
)
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, lookup, observe, ours, resume, suspend
from vicinal.host.system import Host
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_to
from vicinal.integrations.opennebula.call import Call, domain_name, given, libvirt_uri, run_stock
from vicinal.integrations.opennebula.held_resources import (
    HeldResources,
    HeldVf,
    Placement,
    read_mark,
    read_placement,
    write_mark,
)
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.request import LIMITS_FILE, Limits, read_limits
from vicinal.region.detaching import leave, let_return
from vicinal.region.inspection import inspect
from vicinal.region.states import Liveness, SlotState

DETACH_SECONDS = 60.0
"""How long a guest may take to release a device."""
_VF = "hostdev[@type='pci']"
_SETTLE_SECONDS = 20.0
_POLL_SECONDS = 0.2
LEAVE_SECONDS = 60.0
"""How long ranks may take to leave; a rank leaves when it calls MPI."""
_HEART_SECONDS = 1.0
"""How long heartbeats are observed; a live member beats ten times in this time."""


class Vm:
    """One VM on this host."""

    def __init__(
        self,
        vm: int,
        hypervisor: Hypervisor,
        records: Records,
        vfs: Callable[[], Vfs] = Vfs,
    ) -> None:
        self.id = vm
        self.name = domain_name(vm)
        self._hypervisor = replace(hypervisor, lent=frozenset({self.name}))
        self._records = records
        self._vfs = vfs

    @property
    def is_here(self) -> bool:
        """Whether libvirt has the VM's domain, running or not."""
        return lookup(self._hypervisor, self.name) is not None

    @property
    def runs(self) -> bool:
        """Whether the VM runs, and is not paused."""
        return observe(self._hypervisor, self.name) is DomainState.RUNNING

    @property
    def lacks(self) -> HeldResources:
        """The resources that the VM gave up, and has not got again completely."""
        return read_mark(self._domain()) or HeldResources()

    def held_resources(self) -> HeldResources:
        """The VM's present resources, and the resources that it gave up before.

        Includes only VFs that Vicinal's networks gave to the VM: no other device may be
        attached again. Raises VicinalError if libvirt or the records fail.
        """
        found = self.lacks
        request = self._records.region_of(self.id)
        if found.region is None and request is not None:
            for device in self._devices("shmem"):
                if device.get("name") == request.name:
                    found = replace(found, region=request, region_device=_plain(device))
        return found.with_more(self._held_vfs())

    def placement(self) -> Placement:
        """The VM's processors and NUMA nodes, by the numbers of this host. Raises VicinalError."""
        return read_placement(self._description())

    def take(self, what: HeldResources) -> None:
        """Make the ranks leave the region, and the guest release all resources of `what`.

        Raises VicinalError if the VM is paused, a rank stays, or the guest keeps a device. Then the
        VM runs with some of its resources, and give() attaches the others.
        """
        if not self.runs:
            raise VicinalError(
                f"{self.name} is paused, and its guest cannot release the devices of this host",
                "resume the VM first (onevm resume)",
            )
        self._records.lacks(self.id, something=True)
        write_mark(self._domain(), what)
        with ExitStack() as stack:
            if what.region is not None and self._has_region(what):
                path = self._records.checked_file(what.region)
                # One VM of a job at a time: the ranks of each VM must be told from the others'.
                stack.enter_context(self._records.moving_ranks(what.region))
                alone = self._records.vms_of(what.region) == {self.id}
                still = None if alone else self._standing_still
                stack.enter_context(ranks_out(path, still, self.name))
            for address in self._assigned():
                detach_pci_function(
                    self._hypervisor, self.name, PciFunction(address), seconds=DETACH_SECONDS
                )
            if what.region is not None:
                detach_region(self._hypervisor, self.name, what.region.name, seconds=DETACH_SECONDS)

    def give(self, what: HeldResources) -> None:
        """Attach the resources of `what` that the guest lacks. Raises VicinalError if a device does
        not fit.

        The region's file and the VFs must exist: expect() checks that.
        """
        self._go_on()
        await_removal(self._hypervisor, self.name)
        if what.region is not None:
            if not has_region(self._hypervisor, self.name, what.region.name):
                device = ElementTree.fromstring(what.region_device)
                self._attach(device, f"the region {what.region.name}")
            with self._records.moving_ranks(what.region):
                ranks_may_return(self._records.checked_file(what.region))
        self._give_vfs(what.vfs)
        write_mark(self._domain(), None)
        self._records.lacks(self.id, something=False)

    def expect(self, what: HeldResources) -> None:
        """Raise VicinalError unless a network has prepared enough VFs for the VM on this
        host.
        """
        have = len(self._assigned())
        if have < len(what.vfs):
            raise VicinalError(
                f"{self.name} had {len(what.vfs)} SR-IOV VFs, and this host has "
                f"prepared {have} for it",
                "see the earlier messages of the network driver (vnm/vicinal/pre)",
            )

    def _domain(self) -> "libvirt.virDomain":
        return ours(self._hypervisor, self.name)

    def _has_region(self, what: HeldResources) -> bool:
        assert what.region is not None
        return has_region(self._hypervisor, self.name, what.region.name)

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        try:
            suspend(self._hypervisor, self.name)
            yield
        finally:
            resume(self._hypervisor, self.name)

    def _go_on(self) -> None:
        """Resume the VM: a failed move or a killed driver may leave the VM paused."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not self.runs and self.is_here and time.monotonic() < deadline:
            with suppress(VicinalError):  # libvirt still works on the domain
                resume(self._hypervisor, self.name)
            time.sleep(_POLL_SECONDS)

    def _description(self) -> str:
        with explained(f"the domain {self.name} cannot be read"):  # it may end at any time
            return str(self._domain().XMLDesc())

    def _devices(self, kind: str) -> list[ElementTree.Element]:
        return ElementTree.fromstring(self._description()).findall(f"devices/{kind}")

    def _attach(self, device: ElementTree.Element, what: str) -> None:
        """Attach a device at its previous address in the guest."""
        # QEMU frees a device's name only some time after the device. So each attach uses a new
        # name.
        ElementTree.SubElement(device, "alias", name=f"ua-{device.tag}-{os.urandom(4).hex()}")
        with explained(f"{what} cannot be attached to {self.name}"):
            text = ElementTree.tostring(device, encoding="unicode")
            self._domain().attachDeviceFlags(text, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    # --- VFs -----------------------------------------------------------------------------

    def _assigned(self) -> list[str]:
        """Addresses of the VFs that Vicinal's networks gave to the VM on this host."""
        return sorted(assigned_to(self._vfs(), self.name))

    def _identity(self, address: str) -> str:
        settings = self._vfs().find(address).settings
        return settings.get("port_guid") or settings.get("mac") or ""

    def _held_vfs(self) -> Sequence[HeldVf]:
        assigned = self._assigned()
        if not assigned:
            return ()
        found = []
        for device in self._devices(_VF):
            address = pci_function_address(device)
            if address in assigned:
                found.append(HeldVf(_plain(device), self._identity(address)))
        return found

    def _give_vfs(self, vfs: Sequence[HeldVf]) -> None:
        """Attach each VF with its former identity, at its former address in the guest."""
        if not vfs:
            return
        there = {pci_function_address(device) for device in self._devices(_VF)}
        free = {each: self._identity(each) for each in self._assigned()}
        pairs = dict(_paired(vfs, free))
        for vf, address in pairs.items():
            if address in there:
                continue
            device = ElementTree.fromstring(vf.device)
            set_pci_function_address(device, PciFunction(address))
            self._attach(device, f"the VF {address}")


def _plain(device: ElementTree.Element) -> str:
    """A device's XML without its alias, which libvirt chooses anew at each attach."""
    for alias in device.findall("alias"):
        device.remove(alias)
    return ElementTree.tostring(device, encoding="unicode").strip()


def _paired(vfs: Sequence[HeldVf], free: dict[str, str]) -> Iterator[tuple[HeldVf, str]]:
    left = dict(free)
    for vf in sorted(vfs, key=lambda each: each.identity not in free.values()):
        if not left:
            raise VicinalError(
                f"this host has {len(free)} VFs for a VM that had {len(vfs)}",
                "see the earlier messages of the network driver (vnm/vicinal/pre)",
            )
        fits = (each for each, identity in left.items() if identity == vf.identity)
        address = next(fits, next(iter(left)))
        del left[address]
        yield vf, address


@contextmanager
def ranks_out(
    region: Path, still: Callable[[], AbstractContextManager[None]] | None, name: str
) -> Iterator[int]:
    """Make the ranks of one VM leave a region; yields how many left. These ranks stay out.

    `still` suspends the VM within its context; None: all members are of this VM. If the body fails,
    or a rank does not leave, the ranks may rejoin. Raises VicinalError if a rank does not leave.
    """
    slots = _slots_in(region, still)
    try:
        if slots:
            outcome = leave(region, slots, timeout=LEAVE_SECONDS)
            if outcome.troubles:
                raise VicinalError(
                    f"not all ranks in {name} leave the region: {outcome.troubles[0]}",
                    "let the job end, or try again later",
                )
        yield len(slots)
    except BaseException:
        let_return(region, slots)
        raise


def ranks_may_return(region: Path) -> None:
    """Let the members that left a region rejoin."""
    let_return(region)


def _slots_in(region: Path, still: Callable[[], AbstractContextManager[None]] | None) -> list[int]:
    """Slots of the live members in one VM.

    A member that is silent all the time is dead or stopped, and could not leave. If the member runs
    again later, its region's device is gone, and it uses the network.
    """
    alive = _beating(region)
    if alive and still is not None:
        with still():
            alive -= _beating(region)
    return sorted(slot for slot, _ in alive)


def _beating(region: Path) -> set[tuple[int, int]]:
    """Slots and epochs of the members whose heartbeats advance now."""
    return {
        (member.slot, member.epoch)
        for member in inspect(region, patience=_HEART_SECONDS).members
        if member.state is SlotState.JOINED
        and member.liveness == Liveness.HEARTBEAT
        and member.alive
    }


@dataclass(frozen=True)
class Site:
    """One host during an action."""

    hypervisor: Hypervisor
    records: Records
    limits: Limits
    vfs: Callable[[], Vfs] = Vfs
    stock: Callable[[Call, int, bytes | None], int] = run_stock
    """Runs OpenNebula's own script."""
    given: Callable[[], bytes] = given
    host: Host = field(default_factory=Host)
    """For its processors and NUMA nodes."""

    def vm(self, vm_id: int) -> Vm:
        """The VM with this id."""
        return Vm(vm_id, self.hypervisor, self.records, self.vfs)

    def kept(
        self, vm: int, what: HeldResources, nodes: Collection[int] = ()
    ) -> AbstractContextManager[int]:
        """Keep the resources `what` for a VM; they stay if the VM runs here at the end.

        A new region is created on the NUMA nodes `nodes`. Raises VicinalError, with nothing
        created, if this host lacks a resource: Records.held().
        """
        self.vm(vm).expect(what)
        if what.region is None:
            return self.records.released(vm)
        return self.records.held(vm, what.region, self.limits, nodes)


@contextmanager
def site_of(call: Call, records: Records) -> Iterator[Site]:
    """This host's libvirt, records and limits. Raises VicinalError if libvirt does not answer."""
    with connect(libvirt_uri()) as hypervisor:
        yield Site(hypervisor, records, read_limits(call.remotes / LIMITS_FILE))
