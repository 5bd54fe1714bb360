"""Hooks of OpenNebula's own network drivers.

    python -I -m vicinal.integrations.opennebula.hooks SCRIPT ...

    vnm/DRIVER/pre.d/vicinal      before the VM boots: sets rates and link states of its VFs
    vnm/DRIVER/clean.d/vicinal    after the VM has ended: restores the previous settings

After the VM has booted, the drivers themselves set a VF's address, VLAN and checks. They use
an `ip link` command that keeps all other settings. libvirt decides which VM gets a VF, so
hooks bind no VF. While a setting is changed, the VF is assigned to one-net-ID in the
records (vf.py).
"""

import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import INFINIBAND, find_card, find_vf
from vicinal.integrations.opennebula.call import log, reported, running_vms
from vicinal.integrations.opennebula.documents import given_in_base64
from vicinal.integrations.opennebula.vf import (
    FREE_SECONDS,
    HOOKED,
    RATES,
    Assignments,
    VfNic,
    hooked_owner_of,
    read_nics,
)


class Hooks:
    """The hooks' work on one host, for any network driver."""

    def __init__(
        self,
        vfs: Vfs,
        running: Callable[[], AbstractSet[int]] = running_vms,
        free_seconds: float = FREE_SECONDS,
    ) -> None:
        self._vfs = vfs
        self._assignments = Assignments(vfs, hooked_owner_of, running, free_seconds)

    def prepare(self, vm: int, nics: Sequence[VfNic]) -> None:
        """Set the rates that a VM's VFs request: all, or none. Raises VicinalError."""
        asked: list[tuple[str, Settings]] = []
        for nic in nics:
            if nic.has_rates:
                asked.append((nic.address, self._rates(vm, nic)))
            else:
                self._forget(vm, nic)
        self._vfs.assign_all(asked, owner=self._assignments.owner(vm), rebind=False)

    def clean(self, vm: int, nics: Sequence[VfNic]) -> list[str]:
        """Restore the settings that were changed for a VM; returns the failures as texts.

        If NICs were detached from a running VM, restores only these. Otherwise restores all of the
        VM's VFs, whatever the VM's document says.
        """
        alone = [nic.address for nic in nics if nic.attached]
        return self._assignments.give_back(vm, alone or self._assignments.of(vm))

    def _rates(self, vm: int, nic: VfNic) -> Settings:
        """The settings of a VF, after the VM that had it before has lost it.

        Raises VicinalError for a VF of an InfiniBand card.
        """
        vf = self._vfs.find(nic.address)
        card = find_card(self._vfs.cards(), vf.physical)
        if card.kind == INFINIBAND:
            raise VicinalError(
                f"the network of {nic.address} has {' or '.join(RATES)}, and OpenNebula's own "
                "network drivers cannot configure a VF of an InfiniBand card",
                'give its network VN_MAD = "vicinal"',
            )
        self._assignments.take_over(vf, vm)
        return Settings(min_rate=nic.min_rate, max_rate=nic.max_rate, link_state=nic.link_state)

    def _forget(self, vm: int, nic: VfNic) -> None:
        """Remove the rates that an earlier VM left on a VF: this VM requests none."""
        vf = find_vf(self._vfs.cards(), nic.address)
        if vf is not None and vf.owner.startswith(HOOKED):
            self._assignments.take_over(vf, vm)


def main(script: Path) -> None:
    """Do the work of one hook. Raises VicinalError if a request is wrong, or a VF cannot be
    set.
    """
    ends = script.name == "clean"
    vm, nics = read_nics(given_in_base64(), driver=script.parent.name, addresses_only=ends)
    if nics is None:
        return
    hooks = Hooks(Vfs())
    if not ends:
        hooks.prepare(vm, nics)
        return
    # The VM has ended in any case: the next VM takes over VFs that could not be restored.
    for note in hooks.clean(vm, nics):
        # OpenNebula logs a hook's standard output; its driver "dummy" logs standard error.
        sys.stdout.write(f"Vicinal: {note}\n")
        log(script.name, note)


if __name__ == "__main__":
    hooked = Path(sys.argv[1]).absolute().parent.with_suffix("")
    sys.exit(reported(hooked, lambda: main(hooked)))
