"""One host of a move, and the definition of a domain as the other host has to read it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vicinal.cluster.vm.devices import (
    HostFunction,
    SharedRegion,
    function_address,
    set_function_address,
)
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_spec import Placement
from vicinal.cluster.vm.libvirt.domain_xml import place


def _nothing() -> None:
    """Nothing is to be done."""


@dataclass(frozen=True)
class Side:
    """One of two hosts, and what a domain has there."""

    hypervisor: Hypervisor
    transport: str | None = None
    """Where its QEMU listens for a domain that comes: tcp://HOST, or unix:///PATH on the same host;
    None: libvirt chooses, by the host's name."""
    region: SharedRegion | None = None
    """Its file must be there."""
    functions: tuple[HostFunction, ...] = ()
    """They must be free; as many as the other side's."""
    announce: Callable[[], None] = _nothing
    """Called before a domain gets them: the network is to look for their addresses here now."""
    withdraw: Callable[[], None] = _nothing
    """Called when a domain has given them up: their addresses are the other side's to have."""
    placement: Placement | None = None
    """Where the domain runs there; None: as it is defined."""
    names: tuple[str, ...] = ()
    """Bridges, files, and directories with all that is in them, as this host has them; the other
    side has as many, in the same order."""


def described_for(xml: str, here: Side, there: Side) -> str:
    """What a domain is `here`, in XML, as it has to be said `there`."""
    domain = ElementTree.fromstring(xml)
    pairs = list(_pairs(here, there))
    for element in domain.iter():
        if element.text is not None:
            element.text = _renamed(element.text, pairs)
        for key, value in element.attrib.items():
            element.set(key, _renamed(value, pairs))
    _exchange_functions(domain, here, there)
    if there.placement is not None:
        place(domain, there.placement)
    return ElementTree.tostring(domain, encoding="unicode")


def _pairs(here: Side, there: Side) -> Iterator[tuple[str, str]]:
    # Longer ones first: one may be the beginning of another.
    yield from sorted(
        zip(here.names, there.names, strict=True), key=lambda pair: len(pair[0]), reverse=True
    )
    if here.region is not None and there.region is not None:
        yield here.region.name, there.region.name


def _renamed(text: str, pairs: list[tuple[str, str]]) -> str:
    """A name by itself, a file in a directory, or either as a value in QEMU's arguments."""
    for old, new in pairs:
        if text == old or text.startswith(f"{old}/"):
            return new + text.removeprefix(old)
        if f"={old}/" in text:
            return text.replace(f"={old}/", f"={new}/")
    return text


def _exchange_functions(domain: Element, here: Side, there: Side) -> None:
    exchanged = dict(zip(here.functions, there.functions, strict=True))
    for device in domain.iterfind("devices/hostdev[@type='pci']"):
        for old, new in exchanged.items():
            if function_address(device) == old.address:
                set_function_address(device, new)
                break
