"""The SR-IOV functions of a VM's networks, as OpenNebula says which it has chosen for the VM.

    PCI = [ TYPE = "NIC", VN_MAD = "vicinal", ADDRESS = "0000:81:00:2", MAC = "02:00:0a:00:00:07" ]

OpenNebula chooses the function and the hardware address; a user's words may be among the rest, and
count as hostile until they are checked.
"""

import re
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError
from vicinal.host.functions.settings import parse_mac
from vicinal.integrations.opennebula.documents import parse, shown

DRIVER = "vicinal"
"""VN_MAD of the networks that are ours."""
RATES = ("MIN_TX_RATE", "MAX_TX_RATE", "LINK_STATE")
"""What OpenNebula's own drivers do not set of a function."""

_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])[:.]([0-7])", re.IGNORECASE)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_WORDS = {"YES": True, "ON": True, "NO": False, "OFF": False}
_NICS = ("NIC", "NIC_ALIAS", "PCI")
_WHAT = "the VM's document"


@dataclass(frozen=True)
class FunctionNic:
    """A network interface of a VM that is a function of the host's card."""

    address: str
    """PCI address on the host: 0000:81:00.2."""
    mac: str | None = None
    vlan: int | None = None
    spoof_check: bool | None = None
    trust: bool | None = None
    min_rate: int | None = None
    """Mbit/s, as the next."""
    max_rate: int | None = None
    link_state: str | None = None
    network: int | None = None
    """Id of the virtual network."""
    attached: bool = False
    """It comes or goes while the VM runs, and the VM's others are left alone."""

    @property
    def has_rates(self) -> bool:
        """Whether it asks for anything of RATES."""
        return (self.min_rate, self.max_rate, self.link_state) != (None, None, None)


def read_nics(
    document: bytes, driver: str = DRIVER, *, places_only: bool = False
) -> tuple[int, list[FunctionNic] | None]:
    """A VM's id, and its functions in networks of a driver; of others' than ours RATES alone.

    With `places_only` nothing is said of what they are to have: a VM that ends must not stumble
    over a slip in its network.

    If some come or go while the VM runs, these alone; None if that is a NIC of another driver,
    with which these have nothing to do. Raises VicinalError where the document is none of
    OpenNebula's, or says what cannot be.
    """
    root = parse(document, _WHAT, "VM")
    vm = _number(root, "ID")
    if vm is None:
        raise VicinalError(f"{_WHAT} has no ID", "see that OpenNebula calls this driver")
    listed = root.iterfind("TEMPLATE/PCI")
    read = _place_of if places_only else _nic if driver == DRIVER else _rates_of
    found = [read(each) for each in listed if each.findtext("VN_MAD") == driver]
    addresses = [each.address for each in found]
    if twice := {each for each in addresses if addresses.count(each) > 1}:
        raise VicinalError(f"{_WHAT} has {min(twice)} twice", "see the VM's PCI devices")
    if any(_attached(each) for kind in _NICS for each in root.iterfind(f"TEMPLATE/{kind}")):
        return vm, [each for each in found if each.attached] or None
    return vm, found


def _nic(element: Element) -> FunctionNic:
    mac = element.findtext("MAC")
    return replace(
        _rates_of(element),
        mac=parse_mac(mac) if mac else None,
        vlan=_number(element, "VLAN_ID"),
        spoof_check=_switch(element, "SPOOFCHK"),
        trust=_switch(element, "TRUST"),
        network=_number(element, "NETWORK_ID"),
    )


def _rates_of(element: Element) -> FunctionNic:
    return replace(
        _place_of(element),
        min_rate=_number(element, "MIN_TX_RATE"),
        max_rate=_number(element, "MAX_TX_RATE"),
        link_state=(element.findtext("LINK_STATE") or "").lower() or None,
    )


def _place_of(element: Element) -> FunctionNic:
    text = element.findtext("ADDRESS") or ""
    address = _ADDRESS.fullmatch(text)
    if address is None:
        raise VicinalError(
            f"a PCI device of the VM has the address {shown(text)}",
            "see that the host's PCI probe lists its functions",
        )
    domain, bus, slot, function = (each.lower() for each in address.groups())
    return FunctionNic(f"{domain}:{bus}:{slot}.{function}", attached=_attached(element))


def _attached(element: Element) -> bool:
    return (element.findtext("ATTACH") or "").upper() == "YES"


def _number(element: Element, name: str) -> int | None:
    text = element.findtext(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise VicinalError(f"{name} is {shown(text)} in {_WHAT}", "give a number")
    return int(text)


def _switch(element: Element, name: str) -> bool | None:
    text = element.findtext(name)
    if not text:
        return None
    if text.upper() not in _WORDS:
        raise VicinalError(f"{name} is {shown(text)} in {_WHAT}", "write YES or NO")
    return _WORDS[text.upper()]
