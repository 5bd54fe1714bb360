"""Hooks of OpenNebula's own network drivers.

    python -I -m vicinal.integrations.opennebula.hooks SCRIPT ...

    vnm/DRIVER/pre.d/vicinal      before the VM boots: its functions get rates and link states
    vnm/DRIVER/clean.d/vicinal    after it has ended: they are as they were

The drivers themselves give a function its address, VLAN and checks, after the VM has booted, by an
`ip link` that leaves all else as it is. Who has a function is libvirt's to say here: nothing is
bound. It is assigned to one-net-ID in the records (vf.py) as long as something is set.
"""

import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.settings import Settings
from vicinal.host.functions.sysfs import INFINIBAND, find_card, find_function
from vicinal.integrations.opennebula.call import log, reported, running_machines
from vicinal.integrations.opennebula.documents import given_in_base64
from vicinal.integrations.opennebula.vf import (
    FREE_SECONDS,
    HOOKED,
    RATES,
    Assignments,
    FunctionNic,
    hooked_owner_of,
    read_nics,
)


class Hooks:
    """What hooks do on one host, for whichever driver."""

    def __init__(
        self,
        functions: Functions,
        running: Callable[[], AbstractSet[int]] = running_machines,
        free_seconds: float = FREE_SECONDS,
    ) -> None:
        self._functions = functions
        self._assignments = Assignments(functions, hooked_owner_of, running, free_seconds)

    def prepare(self, vm: int, nics: Sequence[FunctionNic]) -> None:
        """Give a VM's functions the rates that they ask for: all, or none. Raises VicinalError."""
        asked: list[tuple[str, Settings]] = []
        for nic in nics:
            if nic.has_rates:
                asked.append((nic.address, self._rates(vm, nic)))
            else:
                self._forget(vm, nic)
        self._functions.assign_all(asked, owner=self._assignments.owner(vm), rebind=False)

    def clean(self, vm: int, nics: Sequence[FunctionNic]) -> list[str]:
        """Set back what was set for a VM; what could not be, in words.

        Without a NIC that comes or goes alone, all of it, whatever the VM's document says.
        """
        alone = [nic.address for nic in nics if nic.attached]
        return self._assignments.give_back(vm, alone or self._assignments.of(vm))

    def _rates(self, vm: int, nic: FunctionNic) -> Settings:
        """What is to be set of a function, which the VM that had it before has no more."""
        function = self._functions.find(nic.address)
        card = find_card(self._functions.cards(), function.physical)
        if card.kind == INFINIBAND:
            raise VicinalError(
                f"the network of {nic.address} has {' or '.join(RATES)}, and it is a function of an"
                " InfiniBand card, which OpenNebula's own network drivers cannot set up",
                'give its network VN_MAD = "vicinal"',
            )
        self._assignments.take_over(function, vm)
        return Settings(min_rate=nic.min_rate, max_rate=nic.max_rate, link_state=nic.link_state)

    def _forget(self, vm: int, nic: FunctionNic) -> None:
        """What an earlier VM had left of its rates is not for this one, which asks for none."""
        function = find_function(self._functions.cards(), nic.address)
        if function is not None and function.owner.startswith(HOOKED):
            self._assignments.take_over(function, vm)


def main(script: Path) -> None:
    """Do what a driver calls a hook for. Raises VicinalError where it must not be, or cannot."""
    ends = script.name == "clean"
    vm, nics = read_nics(given_in_base64(), driver=script.parent.name, places_only=ends)
    if nics is None:
        return
    hooks = Hooks(Functions())
    if not ends:
        hooks.prepare(vm, nics)
        return
    # A VM has ended, whatever state its functions are in: who gets them next takes over.
    for note in hooks.clean(vm, nics):
        # OpenNebula logs what a hook says on its output; its driver dummy, what it complains of.
        sys.stdout.write(f"Vicinal: {note}\n")
        log(script.name, note)


if __name__ == "__main__":
    hooked = Path(sys.argv[1]).absolute().parent.with_suffix("")
    sys.exit(reported(hooked, lambda: main(hooked)))
