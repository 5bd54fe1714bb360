"""The network driver: networks whose NICs are SR-IOV VFs.

    python -I -m vicinal.integrations.opennebula.network SCRIPT ...

    pre         before the VM boots: configures VFs, and gives them to vfio-pci
    clean       after the VM has ended: restores VFs
    update_nic  while the VM runs: changes the settings that can be changed then
    post        nothing: InfiniBand GUIDs must be set before the guest's driver starts

A VM's VF is assigned to one-ID in the records of `vicinal vf` (vf.py).
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
    plain_guid,
)
from vicinal.integrations.opennebula.call import reported, running_vms
from vicinal.integrations.opennebula.documents import given_in_base64
from vicinal.integrations.opennebula.vf import FREE_SECONDS, Assignments, VfNic, read_nics

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
        """Release the VFs of a VM; returns the failures as texts.

        If NICs were detached from a running VM, releases only these. Otherwise releases all of the
        VM's VFs, whatever the VM's document says.
        """
        alone = [nic.address for nic in nics if nic.attached]
        return self._assignments.give_back(vm, alone or self._assignments.of(vm))

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


def main(script: Path, arguments: Sequence[str]) -> None:
    """Do one action of a network. Raises VicinalError if a request is wrong, or a VF is not
    free.
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


if __name__ == "__main__":
    own = Path(sys.argv[1]).absolute()
    sys.exit(reported(own, lambda: main(own, sys.argv[2:])))
