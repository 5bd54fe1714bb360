"""One host of a move, and a domain's definition adapted to the other host."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vicinal.cluster.vm.devices import (
    PciFunction,
    SharedRegion,
    pci_function_address,
    set_pci_function_address,
)
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_spec import Placement
from vicinal.cluster.vm.libvirt.domain_xml import place


def _nothing() -> None:
    """Do nothing: the default of a side's calls."""


@dataclass(frozen=True)
class Side:
    """One of two hosts, with the devices that a domain has there."""

    hypervisor: Hypervisor
    transport: str | None = None
    """Where its QEMU receives an incoming domain: tcp://HOST, or unix:///PATH on the same host;
    None: libvirt chooses by the host's name.
    """
    region: SharedRegion | None = None
    """The region there, whose file must exist."""
    pci_functions: tuple[PciFunction, ...] = ()
    """Free functions, the same number as on the other side."""
    announce: Callable[[], None] = _nothing
    """Called before a domain gets the functions, so that the network finds their addresses here."""
    withdraw: Callable[[], None] = _nothing
    """Called after a domain gave the functions up, so that the other side can take the addresses.
    """
    placement: Placement | None = None
    """The domain's placement there; None: as defined."""
    names: tuple[str, ...] = ()
    """Bridges, files, and directories of this host. The other side has the same number in the same
    order. The name of a directory stands for all paths in it.
    """


def described_for(xml: str, here: Side, there: Side) -> str:
    """The XML of a domain on `here`, adapted to `there`."""
    domain = ElementTree.fromstring(xml)
    pairs = list(_pairs(here, there))
    for element in domain.iter():
        if element.text is not None:
            element.text = _renamed(element.text, pairs)
        for key, value in element.attrib.items():
            element.set(key, _renamed(value, pairs))
    _exchange_pci_functions(domain, here, there)
    if there.placement is not None:
        place(domain, there.placement)
    return ElementTree.tostring(domain, encoding="unicode")


def _pairs(here: Side, there: Side) -> Iterator[tuple[str, str]]:
    # Longer names first, because one name may be the beginning of another.
    yield from sorted(
        zip(here.names, there.names, strict=True), key=lambda pair: len(pair[0]), reverse=True
    )
    if here.region is not None and there.region is not None:
        yield here.region.name, there.region.name


def _renamed(text: str, pairs: list[tuple[str, str]]) -> str:
    """Replace a whole name, a directory at the beginning of a path, or a path in QEMU's options."""
    for old, new in pairs:
        if text == old or text.startswith(f"{old}/"):
            return new + text.removeprefix(old)
        if f"={old}/" in text:
            return text.replace(f"={old}/", f"={new}/")
    return text


def _exchange_pci_functions(domain: Element, here: Side, there: Side) -> None:
    exchanged = dict(zip(here.pci_functions, there.pci_functions, strict=True))
    for device in domain.iterfind("devices/hostdev[@type='pci']"):
        for old, new in exchanged.items():
            if pci_function_address(device) == old.address:
                set_pci_function_address(device, new)
                break
