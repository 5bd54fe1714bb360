"""The domain of a VM that runs, and what it has of this host: taken from it, and given again.

OpenNebula made the domain, and has its driver called: so the library of our own domains may work on
it. Ranks in the VM leave the region before, and may come back after. They are asked through the
region's file, which has a word for each member that only the host's manager writes
(region/detaching.py): OpenNebula's drivers have no way into the guest. The ranks of one VM are told
by their heartbeats: members in VMs count ten times a second, and those of a VM that stands still do
not. A host name would say less, since VMs of one image may all have the same.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import HostFunction, function_address, set_function_address
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_devices import (
    await_removal,
    detach_function,
    detach_region,
    has_region,
)
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, lookup, observe, ours, resume, suspend
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_to
from vicinal.host.system import Host
from vicinal.integrations.opennebula.call import Call, domain_name, given, libvirt_uri, run_stock
from vicinal.integrations.opennebula.held_resources import (
    HeldFunction,
    HeldResources,
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
"""For a guest to let go of a device."""
_FUNCTION = "hostdev[@type='pci']"
_SETTLE_SECONDS = 20.0
_POLL_SECONDS = 0.2
LEAVE_SECONDS = 60.0
"""For ranks to leave: they do when they call MPI."""
_HEART_SECONDS = 1.0
"""So long a heart is listened to, in which it beats ten times."""


class Machine:
    """One VM, on this host."""

    def __init__(
        self,
        vm: int,
        hypervisor: Hypervisor,
        records: Records,
        functions: Callable[[], Functions] = Functions,
    ) -> None:
        self.vm = vm
        self.name = domain_name(vm)
        self._hypervisor = replace(hypervisor, lent=frozenset({self.name}))
        self._records = records
        self._functions = functions

    @property
    def is_here(self) -> bool:
        """Whether libvirt has it, running or not."""
        return lookup(self._hypervisor, self.name) is not None

    @property
    def runs(self) -> bool:
        """Whether it runs, and does not stand still."""
        return observe(self._hypervisor, self.name) is DomainState.RUNNING

    @property
    def lacks(self) -> HeldResources:
        """What it gave up, and has not got again as a whole."""
        return read_mark(self._domain()) or HeldResources()

    def held_resources(self) -> HeldResources:
        """What it has of this host, and what it gave up before. Raises VicinalError.

        Only functions that a network of ours gave it: what else it has is not ours to give again.
        """
        found = self.lacks
        request = self._records.region_of(self.vm)
        if found.region is None and request is not None:
            for device in self._devices("shmem"):
                if device.get("name") == request.name:
                    found = replace(found, region=request, region_device=_plain(device))
        return found.with_more(self._held_functions())

    def placement(self) -> Placement:
        """Where it runs, by the numbers of this host. Raises VicinalError."""
        return read_placement(self._description())

    def take(self, what: HeldResources) -> None:
        """Have the guest give it up, its ranks having left the region. Raises VicinalError.

        Then it runs with some of it, and give() brings back all.
        """
        if not self.runs:
            raise VicinalError(
                f"{self.name} stands still, and its guest cannot give up what is this host's",
                "let it go on first (onevm resume)",
            )
        self._records.lacks(self.vm, something=True)
        write_mark(self._domain(), what)
        with ExitStack() as stack:
            if what.region is not None and self._has_region(what):
                path = self._records.checked_file(what.region)
                # Of one VM of a job after the other: each has to be told from the others.
                stack.enter_context(self._records.moving_ranks(what.region))
                alone = self._records.machines_of(what.region) == {self.vm}
                still = None if alone else self._standing_still
                stack.enter_context(ranks_out(path, still, self.name))
            for address in self._assigned():
                detach_function(
                    self._hypervisor, self.name, HostFunction(address), seconds=DETACH_SECONDS
                )
            if what.region is not None:
                detach_region(self._hypervisor, self.name, what.region.name, seconds=DETACH_SECONDS)

    def give(self, what: HeldResources) -> None:
        """Have the guest get all of it, of this host, as far as it lacks it. Raises VicinalError.

        The region's file and the functions must be there: expect() sees to that.
        """
        self._go_on()
        await_removal(self._hypervisor, self.name)
        if what.region is not None:
            if not has_region(self._hypervisor, self.name, what.region.name):
                device = ElementTree.fromstring(what.region_device)
                self._attach(device, f"the region {what.region.name}")
            with self._records.moving_ranks(what.region):
                ranks_may_return(self._records.checked_file(what.region))
        self._give_functions(what.functions)
        write_mark(self._domain(), None)
        self._records.lacks(self.vm, something=False)

    def expect(self, what: HeldResources) -> None:
        """Raise VicinalError unless this host has functions for it, which a network prepared."""
        have = len(self._assigned())
        if have < len(what.functions):
            raise VicinalError(
                f"{self.name} had {len(what.functions)} SR-IOV functions, and {have} were prepared "
                "for it on this host",
                "see what its networks' driver said before (vnm/vicinal/pre)",
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
        """Have it run: a move that failed, or a killed driver, may leave it standing still."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not self.runs and self.is_here and time.monotonic() < deadline:
            with suppress(VicinalError):  # libvirt is still at work on it
                resume(self._hypervisor, self.name)
            time.sleep(_POLL_SECONDS)

    def _description(self) -> str:
        with explained(f"the domain {self.name} cannot be looked at"):  # it may end at any time
            return str(self._domain().XMLDesc())

    def _devices(self, kind: str) -> list[ElementTree.Element]:
        return ElementTree.fromstring(self._description()).findall(f"devices/{kind}")

    def _attach(self, device: ElementTree.Element, what: str) -> None:
        """Give the guest a device, at the place where it was."""
        # QEMU lets go of what a device was made of only some time after the device: so it is
        # called anew each time.
        ElementTree.SubElement(device, "alias", name=f"ua-{device.tag}-{os.urandom(4).hex()}")
        with explained(f"{what} cannot be attached to {self.name}"):
            text = ElementTree.tostring(device, encoding="unicode")
            self._domain().attachDeviceFlags(text, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    # --- functions -----------------------------------------------------------------------------

    def _assigned(self) -> list[str]:
        """Addresses of the functions that networks of ours have given it on this host."""
        return sorted(assigned_to(self._functions(), self.name))

    def _identity(self, address: str) -> str:
        settings = self._functions().find(address).settings
        return settings.get("port_guid") or settings.get("mac") or ""

    def _held_functions(self) -> Sequence[HeldFunction]:
        assigned = self._assigned()
        if not assigned:
            return ()
        found = []
        for device in self._devices(_FUNCTION):
            address = function_address(device)
            if address in assigned:
                found.append(HeldFunction(_plain(device), self._identity(address)))
        return found

    def _give_functions(self, functions: Sequence[HeldFunction]) -> None:
        """Each the one with its address or GUID, at the place in the guest where it was."""
        if not functions:
            return
        there = {function_address(device) for device in self._devices(_FUNCTION)}
        free = {each: self._identity(each) for each in self._assigned()}
        pairs = dict(_paired(functions, free))
        for function, address in pairs.items():
            if address in there:
                continue
            device = ElementTree.fromstring(function.device)
            set_function_address(device, HostFunction(address))
            self._attach(device, f"the function {address}")


def _plain(device: ElementTree.Element) -> str:
    """A device as it is to be again, without the name that libvirt has for it now."""
    for alias in device.findall("alias"):
        device.remove(alias)
    return ElementTree.tostring(device, encoding="unicode").strip()


def _paired(
    functions: Sequence[HeldFunction], free: dict[str, str]
) -> Iterator[tuple[HeldFunction, str]]:
    left = dict(free)
    for function in sorted(functions, key=lambda each: each.identity not in free.values()):
        if not left:
            raise VicinalError(
                f"this host has {len(free)} functions for a VM that had {len(functions)}",
                "see what its networks' driver said before (vnm/vicinal/pre)",
            )
        fits = (each for each, identity in left.items() if identity == function.identity)
        address = next(fits, next(iter(left)))
        del left[address]
        yield function, address


@contextmanager
def ranks_out(
    region: Path, still: Callable[[], AbstractContextManager[None]] | None, name: str
) -> Iterator[int]:
    """Have the ranks of one VM leave a region; gives how many did, and they stay out.

    `still` has the VM stand still meanwhile; None: all members are this VM's. If what is within
    fails, or a rank does not leave, they may come back. Raises VicinalError.
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
    """Let those that left a region come back to it."""
    let_return(region)


def _slots_in(region: Path, still: Callable[[], AbstractContextManager[None]] | None) -> list[int]:
    """Slots of the members in one VM that live.

    Who is silent all the time is dead or stopped, and could not leave. If it goes on one day, it
    finds that its region's device is gone, and talks over the network.
    """
    alive = _beating(region)
    if alive and still is not None:
        with still():
            alive -= _beating(region)
    return sorted(slot for slot, _ in alive)


def _beating(region: Path) -> set[tuple[int, int]]:
    """Slots and epochs of those whose hearts beat now."""
    return {
        (member.slot, member.epoch)
        for member in inspect(region, patience=_HEART_SECONDS).members
        if member.state is SlotState.JOINED
        and member.liveness == Liveness.HEARTBEAT
        and member.alive
    }


@dataclass(frozen=True)
class Site:
    """One host, while an action is at work."""

    hypervisor: Hypervisor
    records: Records
    limits: Limits
    functions: Callable[[], Functions] = Functions
    stock: Callable[[Call, int, bytes | None], int] = run_stock
    """Runs OpenNebula's own script."""
    given: Callable[[], bytes] = given
    host: Host = field(default_factory=Host)
    """Its processors and NUMA nodes."""

    def machine(self, vm: int) -> Machine:
        """A VM, on this host."""
        return Machine(vm, self.hypervisor, self.records, self.functions)

    def kept(
        self, vm: int, what: HeldResources, nodes: Collection[int] = ()
    ) -> AbstractContextManager[int]:
        """Have for a VM what it is to get, and keep it if the VM runs here in the end.

        A region that is made for that is on these NUMA nodes.

        Raises VicinalError, with nothing made, where that cannot be had: Records.held().
        """
        self.machine(vm).expect(what)
        if what.region is None:
            return self.records.released(vm)
        return self.records.held(vm, what.region, self.limits, nodes)


@contextmanager
def site_of(call: Call, records: Records) -> Iterator[Site]:
    """This host. Raises VicinalError where libvirt does not answer."""
    with connect(libvirt_uri()) as hypervisor:
        yield Site(hypervisor, records, read_limits(call.remotes / LIMITS_FILE))
