"""The VFs of a VM's NICs: Vicinal's network driver, and hooks of OpenNebula's own drivers.

    python -I -m vicinal.integrations.opennebula.network SCRIPT ...

The network driver is for networks whose NICs are SR-IOV VFs. A VM's VF is assigned to one-ID in the
records of `vicinal vf` (vf.py):

    vnm/vicinal/pre         before the VM boots: configures VFs, and gives them to vfio-pci
    vnm/vicinal/clean       after the VM has ended: restores VFs
    vnm/vicinal/update_nic  while the VM runs: changes the settings that can be changed then
    vnm/vicinal/post        nothing: InfiniBand GUIDs must be set before the guest's driver starts

Hooks are for networks of OpenNebula's own drivers:

    vnm/DRIVER/pre.d/vicinal      before the VM boots: sets rates and link states of its VFs
    vnm/DRIVER/clean.d/vicinal    after the VM has ended: restores the previous settings

After the VM has booted, OpenNebula's drivers themselves set a VF's address, VLAN and checks. They
use an `ip link` command that keeps all other settings. libvirt decides which VM gets a VF, so hooks
bind no VF. While a setting is changed, the VF is assigned to one-net-ID in the records.
"""

import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.host.vf.infiniband import wait_card_active
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import (
    INFINIBAND,
    PhysicalFunction,
    VirtualFunction,
    find_card,
    find_vf,
    plain_guid,
)
from vicinal.integrations.opennebula.call import given_in_base64, log, reported, running_vms
from vicinal.integrations.opennebula.vf import (
    FREE_SECONDS,
    HOOKED,
    RATES,
    Assignments,
    VfNic,
    hooked_owner_of,
    read_nics,
)

_ACTIVE_SECONDS = 10.0
"""How long a subnet manager may take to bring up the port of the card itself."""
_NO_NODE_GUID = "mlx4_core"
"""This card driver sets only GUIDs of ports."""


class Network:
    """The network driver's work on one host."""

    def __init__(
        self,
        vfs: Vfs,
        running: Callable[[], AbstractSet[int]] = running_vms,
        free_seconds: float = FREE_SECONDS,
        active_seconds: float = _ACTIVE_SECONDS,
    ) -> None:
        self._vfs = vfs
        self._assignments = Assignments(vfs, running=running, free_seconds=free_seconds)
        self._active_seconds = active_seconds

    def prepare(self, vm: int, nics: Sequence[VfNic]) -> None:
        """Configure the VFs for a VM: all of them, or none. Raises VicinalError."""
        asked: list[tuple[str, Settings]] = []
        for nic in nics:
            vf = self._vfs.find(nic.address)
            vf = self._assignments.take_over(vf, vm)
            card = self._card(vf)
            asked.append((nic.address, _settings(nic, card, vf)))
            if card.kind == INFINIBAND:
                # The VF's own port is visible only in the guest, too late for a refusal.
                wait_card_active(self._vfs.host, card.address, self._active_seconds)
        self._vfs.assign_all(asked, owner=self._assignments.owner(vm), vfio=True)

    def clean(self, vm: int, nics: Sequence[VfNic]) -> list[str]:
        """Release the VFs of a VM; returns the failures as texts. See Assignments.clean()."""
        return self._assignments.clean(vm, nics)

    def update(self, vm: int, nics: Sequence[VfNic], network: int) -> None:
        """Apply the present settings of a network to the VM's VFs. Raises VicinalError."""
        for nic in nics:
            if nic.network == network:
                vf = self._vfs.find(nic.address)
                settings = _settings(nic, self._card(vf), vf, changed=True)
                owner = self._assignments.owner(vm)
                self._vfs.change(nic.address, owner=owner, settings=settings)

    def _card(self, vf: VirtualFunction) -> PhysicalFunction:
        return find_card(self._vfs.cards(), vf.physical)


def guid_of(mac: str) -> str:
    """The GUID of a VM's InfiniBand port: the NIC's hardware address as EUI-64.

    OpenNebula gives each NIC a hardware address, which the VM keeps on every host.
    """
    digits = mac.replace(":", "")
    return plain_guid(f"{digits[:6]}fffe{digits[6:]}")


def _settings(
    nic: VfNic,
    card: PhysicalFunction,
    vf: VirtualFunction,
    *,
    changed: bool = False,
) -> Settings:
    """The settings for a VF; `changed` leaves out settings that a guest's driver has read
    already.

    Raises VicinalError if the network's settings do not fit the card.
    """
    if card.kind != INFINIBAND:
        mac = None if changed else nic.mac
        # A VLAN left by an earlier VM, or by the network's old settings, must be removed. Without a
        # left VLAN nothing is set, because some cards' drivers know no VLANs.
        left = 0 if vf.settings.get("vlan", "0") != "0" else None
        return Settings(
            mac=mac,
            vlan=left if nic.vlan is None else nic.vlan,
            spoof_check=nic.spoof_check,
            trust=nic.trust,
            min_rate=nic.min_rate,
            max_rate=nic.max_rate,
            link_state=nic.link_state,
        )
    if nic.min_rate is not None or nic.max_rate is not None:
        raise VicinalError(
            f"the network of {nic.address} has a rate, and InfiniBand VFs have none",
            "remove MIN_TX_RATE and MAX_TX_RATE",
        )
    if nic.mac is None and not changed:
        raise VicinalError(
            f"the NIC of {nic.address} has no hardware address, and its GUIDs need one",
            'give its network a range of addresses: AR = [ TYPE = "ETHER", SIZE = "100" ]',
        )
    guid = None if changed or nic.mac is None else guid_of(nic.mac)
    node = None if card.driver == _NO_NODE_GUID else guid
    return Settings(node_guid=node, port_guid=guid, pkey=nic.vlan, link_state=nic.link_state)


class Hooks:
    """The hooks' work on one host, for any of OpenNebula's network drivers."""

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

        See Assignments.clean().
        """
        return self._assignments.clean(vm, nics)

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


def main(script: Path, arguments: Sequence[str]) -> None:
    """Do one action of Vicinal's network driver.

    Raises VicinalError if a request is wrong, or a VF is not free.
    """
    vm, nics = read_nics(given_in_base64(), addresses_only=script.name == "clean")
    if nics is None:
        return
    network = Network(Vfs())
    match script.name:
        case "pre":
            network.prepare(vm, nics)
        case "clean":
            # The VM has ended in any case: the next VM takes over VFs that were not released.
            for note in network.clean(vm, nics):
                sys.stderr.write(f"ERROR: clean: Vicinal: {note}\n")
        case "update_nic":
            network.update(vm, nics, _network_id(arguments))


def _network_id(arguments: Sequence[str]) -> int:
    text = arguments[1] if len(arguments) > 1 else ""
    if not text.isascii() or not text.isdigit():
        raise VicinalError(
            "update_nic was called without the id of a virtual network",
            "call the driver as OpenNebula calls its other network drivers",
        )
    return int(text)


def run_hook(script: Path) -> None:
    """Do the work of one hook, of the driver's script vnm/DRIVER/ACTION.

    Raises VicinalError if a request is wrong, or a VF cannot be set.
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
    own = Path(sys.argv[1]).absolute()
    if own.parent.suffix == ".d":
        hooked = own.parent.with_suffix("")
        sys.exit(reported(hooked, lambda: run_hook(hooked)))
    sys.exit(reported(own, lambda: main(own, sys.argv[2:])))
