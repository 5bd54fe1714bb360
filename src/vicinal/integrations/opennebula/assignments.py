"""Functions that the records of `vicinal functions` say a VM has, and how they come back.

    one-7        those of VM 7 that networks of ours have set up, and vfio-pci has
    one-net-7    those that OpenNebula's own drivers have set up, and hooks of ours gave a rate

Records are written before anything is changed. So what a killed driver has left is known, and
whoever gets the function next from OpenNebula takes it over.
"""

import re
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from vicinal.base.errors import VicinalError
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_to
from vicinal.host.functions.sysfs import VirtualFunction
from vicinal.integrations.opennebula.hypervisor import domain_name, running_machines

FREE_SECONDS = 10.0
"""So long after a VM has ended its process may still have the function."""
HOOKED = "one-net-"
_POLL_SECONDS = 0.1
_LEFT = re.compile(rf"(?:{HOOKED}|one-)([0-9]{{1,10}})")


def owner_of(vm: int) -> str:
    """The name by which the records know a VM that has functions of networks of ours."""
    return domain_name(vm)


def hooked_owner_of(vm: int) -> str:
    """The same, of networks of OpenNebula's own drivers: another name, since those are not ours.

    What saves and moves a VM detaches all that is its own.
    """
    return f"{HOOKED}{vm}"


class Assignments:
    """The functions of VMs on one host, by one kind of owners."""

    def __init__(
        self,
        functions: Functions,
        owner: Callable[[int], str] = owner_of,
        running: Callable[[], AbstractSet[int]] = running_machines,
        free_seconds: float = FREE_SECONDS,
    ) -> None:
        self._functions = functions
        self.owner = owner
        self._running = running
        """Says which VMs run here."""
        self._free_seconds = free_seconds

    def of(self, vm: int) -> list[str]:
        """Addresses of a VM's functions."""
        return assigned_to(self._functions, self.owner(vm))

    def give_back(self, vm: int, addresses: Sequence[str]) -> list[str]:
        """Release those that a VM has; what could not be done or set back, in words."""
        own = [address for address in self.of(vm) if address in addresses]
        try:
            return self._release(own, self.owner(vm))
        except VicinalError as error:
            return [f"what is not free now is left assigned to {self.owner(vm)}: {error}"]

    def take_over(self, function: VirtualFunction, vm: int) -> VirtualFunction:
        """Release a function that was left by a VM which does not run: OpenNebula gave it to `vm`.

        So is one of `vm` itself, of a killed attempt, which may have asked for more. Others',
        and those of VMs that run, are left to who assigns them, which says whose they are. Returns
        the function as it is then. Raises VicinalError where it does not come free.
        """
        left = _LEFT.fullmatch(function.owner)
        own = function.owner == self.owner(vm)
        if left is None or (not own and int(left[1]) in self._running()):
            return function
        self._release([function.address], function.owner)
        return self._functions.find(function.address)

    def _release(self, addresses: Sequence[str], owner: str) -> list[str]:
        if not addresses:
            return []
        deadline = time.monotonic() + self._free_seconds
        while any(map(self._functions.host.use, addresses)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self._functions.release(addresses, owner=owner)
