"""The domain of a VM that runs, and what it has of this host: taken from it, and given again.

OpenNebula made it, and has its driver called: so the library of our own domains may work on it.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_devices import (
    await_removal,
    detach_function,
    detach_region,
    has_region,
)
from vicinal.cluster.vm.libvirt.domain_spec import HostFunction
from vicinal.cluster.vm.libvirt.domain_xml import function_address, set_function_address
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, lookup, observe, ours, resume, suspend
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_to
from vicinal.integrations.opennebula.belongings import (
    Belongings,
    HeldFunction,
    read_mark,
    write_mark,
)
from vicinal.integrations.opennebula.hypervisor import domain_name
from vicinal.integrations.opennebula.leaving import ranks_may_return, ranks_out
from vicinal.integrations.opennebula.placement import Placement, read_placement
from vicinal.integrations.opennebula.records import Records

DETACH_SECONDS = 60.0
"""For a guest to let go of a device."""
_FUNCTION = "hostdev[@type='pci']"
_SETTLE_SECONDS = 20.0
_POLL_SECONDS = 0.2


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
    def lacks(self) -> Belongings:
        """What it gave up, and has not got again as a whole."""
        return read_mark(self._domain()) or Belongings()

    def belongings(self) -> Belongings:
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

    def take(self, what: Belongings) -> None:
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

    def give(self, what: Belongings) -> None:
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

    def expect(self, what: Belongings) -> None:
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

    def _has_region(self, what: Belongings) -> bool:
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
