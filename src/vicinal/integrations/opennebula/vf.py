"""The SR-IOV VFs that OpenNebula chose for a VM, and the VFs that a VM has.

    PCI = [ TYPE = "NIC", VN_MAD = "vicinal", ADDRESS = "0000:81:00:2", MAC = "02:00:0a:00:00:07" ]

OpenNebula chooses the VF and the hardware address. Other parts may be a user's words, and
count as hostile until they are checked.

The records of `vicinal vf` name the owner of each VF:

    one-7        VFs of VM 7 that Vicinal's networks configured; vfio-pci drives them
    one-net-7    VFs that OpenNebula's own drivers configured, with a rate set by a hook

A record is written before each change. So the VFs that a killed driver left are known. When
OpenNebula gives such a VF to another VM, that VM takes over the record.
"""

import re
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_to
from vicinal.host.vf.settings import parse_mac
from vicinal.host.vf.sysfs import VirtualFunction
from vicinal.integrations.opennebula.call import domain_name, parse, running_vms, shown

DRIVER = "vicinal"
"""VN_MAD of Vicinal's networks."""
RATES = ("MIN_TX_RATE", "MAX_TX_RATE", "LINK_STATE")
"""Settings of a VF that OpenNebula's own drivers do not set."""

_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])[:.]([0-7])", re.IGNORECASE)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_WORDS = {"YES": True, "ON": True, "NO": False, "OFF": False}
_NICS = ("NIC", "NIC_ALIAS", "PCI")
_WHAT = "the VM's document"
FREE_SECONDS = 10.0
"""How long the process of an ended VM may still use a VF."""
HOOKED = "one-net-"
_POLL_SECONDS = 0.1
_LEFT = re.compile(rf"(?:{HOOKED}|one-)([0-9]{{1,10}})")


@dataclass(frozen=True)
class VfNic:
    """A VM's network interface that is a VF of the host's card."""

    address: str
    """PCI address on the host: 0000:81:00.2."""
    mac: str | None = None
    vlan: int | None = None
    spoof_check: bool | None = None
    trust: bool | None = None
    min_rate: int | None = None
    """Mbit/s, as max_rate."""
    max_rate: int | None = None
    link_state: str | None = None
    network: int | None = None
    """Id of the virtual network."""
    attached: bool = False
    """The VF is attached or detached while the VM runs; the VM's other VFs stay as they
    are.
    """

    @property
    def has_rates(self) -> bool:
        """Whether the NIC requests one of RATES."""
        return (self.min_rate, self.max_rate, self.link_state) != (None, None, None)


def read_nics(
    document: bytes, driver: str = DRIVER, *, addresses_only: bool = False
) -> tuple[int, list[VfNic] | None]:
    """A VM's id, and its VFs in the networks of `driver`.

    For drivers other than Vicinal's, reads only RATES. With `addresses_only`, reads only the
    addresses: a slip in a network's settings must not keep a VM from ending. If NICs are attached
    or detached while the VM runs, returns only these; None if these NICs have another driver.
    Raises VicinalError if the document is not OpenNebula's, or a value is not possible.
    """
    root = parse(document, _WHAT, "VM")
    vm = _number(root, "ID")
    if vm is None:
        raise VicinalError(f"{_WHAT} has no ID", "let only OpenNebula call this driver")
    listed = root.iterfind("TEMPLATE/PCI")
    read = _address_of if addresses_only else _nic if driver == DRIVER else _rates_of
    found = [read(each) for each in listed if each.findtext("VN_MAD") == driver]
    addresses = [each.address for each in found]
    if twice := {each for each in addresses if addresses.count(each) > 1}:
        raise VicinalError(f"{_WHAT} has the VF {min(twice)} twice", "correct the VM's PCI devices")
    if any(_attached(each) for kind in _NICS for each in root.iterfind(f"TEMPLATE/{kind}")):
        return vm, [each for each in found if each.attached] or None
    return vm, found


def _nic(element: Element) -> VfNic:
    mac = element.findtext("MAC")
    return replace(
        _rates_of(element),
        mac=parse_mac(mac) if mac else None,
        vlan=_number(element, "VLAN_ID"),
        spoof_check=_switch(element, "SPOOFCHK"),
        trust=_switch(element, "TRUST"),
        network=_number(element, "NETWORK_ID"),
    )


def _rates_of(element: Element) -> VfNic:
    return replace(
        _address_of(element),
        min_rate=_number(element, "MIN_TX_RATE"),
        max_rate=_number(element, "MAX_TX_RATE"),
        link_state=(element.findtext("LINK_STATE") or "").lower() or None,
    )


def _address_of(element: Element) -> VfNic:
    text = element.findtext("ADDRESS") or ""
    address = _ADDRESS.fullmatch(text)
    if address is None:
        raise VicinalError(
            f"a PCI device of the VM has the address {shown(text)}, which is no PCI address",
            "check that the host's PCI probe lists its VFs",
        )
    domain, bus, slot, function = (each.lower() for each in address.groups())
    return VfNic(f"{domain}:{bus}:{slot}.{function}", attached=_attached(element))


def _attached(element: Element) -> bool:
    return (element.findtext("ATTACH") or "").upper() == "YES"


def _number(element: Element, name: str) -> int | None:
    text = element.findtext(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise VicinalError(f"{name} is {shown(text)} in {_WHAT}", "write a number")
    return int(text)


def _switch(element: Element, name: str) -> bool | None:
    text = element.findtext(name)
    if not text:
        return None
    if text.upper() not in _WORDS:
        raise VicinalError(f"{name} is {shown(text)} in {_WHAT}", "write YES or NO")
    return _WORDS[text.upper()]


def owner_of(vm: int) -> str:
    """The owner in the records for a VM with VFs of Vicinal's networks."""
    return domain_name(vm)


def hooked_owner_of(vm: int) -> str:
    """The owner in the records for a VM with VFs of OpenNebula's own drivers.

    The name differs from owner_of(), because save and migrate detach all VFs of owner_of().
    """
    return f"{HOOKED}{vm}"


class Assignments:
    """The VFs of VMs on one host, for one kind of owner."""

    def __init__(
        self,
        vfs: Vfs,
        owner: Callable[[int], str] = owner_of,
        running: Callable[[], AbstractSet[int]] = running_vms,
        free_seconds: float = FREE_SECONDS,
    ) -> None:
        self._vfs = vfs
        self.owner = owner
        self._running = running
        """Returns the ids of the VMs that run here."""
        self._free_seconds = free_seconds

    def of(self, vm: int) -> list[str]:
        """Addresses of the VM's VFs."""
        return assigned_to(self._vfs, self.owner(vm))

    def clean(self, vm: int, nics: Sequence[VfNic]) -> list[str]:
        """Release the VFs of a VM; returns the failures as texts.

        If NICs were detached from a running VM, releases only these. Otherwise releases all of the
        VM's VFs, whatever the VM's document says.
        """
        detached = [nic.address for nic in nics if nic.attached]
        own = self.of(vm)
        if detached:
            own = [address for address in own if address in detached]
        try:
            return self._release(own, self.owner(vm))
        except VicinalError as error:
            return [f"VFs that are not free stay assigned to {self.owner(vm)}: {error}"]

    def take_over(self, vf: VirtualFunction, vm: int) -> VirtualFunction:
        """Release a VF of an ended VM, which OpenNebula gave to `vm`; returns the VF's
        new state.

        Also releases a VF of `vm` itself, because a killed attempt may have requested more.
        VFs of running VMs and of other owners stay: their assignment fails and names the
        owner. Raises VicinalError if the VF cannot be released.
        """
        left = _LEFT.fullmatch(vf.owner)
        own = vf.owner == self.owner(vm)
        if left is None or (not own and int(left[1]) in self._running()):
            return vf
        self._release([vf.address], vf.owner)
        return self._vfs.find(vf.address)

    def _release(self, addresses: Sequence[str], owner: str) -> list[str]:
        if not addresses:
            return []
        deadline = time.monotonic() + self._free_seconds
        while any(map(self._vfs.host.use, addresses)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self._vfs.release(addresses, owner=owner)
