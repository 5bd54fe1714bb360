"""Detaching devices from a running domain and attaching them, with the guest's cooperation.

The devices are regions and functions of the host.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, Queue
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import PciFunction, SharedRegion
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_xml import (
    pci_function_device,
    pci_function_xml,
    region_device,
    region_xml,
)
from vicinal.cluster.vm.libvirt.lifecycle import ours

_REMOVAL = "urn:vicinal:removal"
"""XML namespace of a running domain's metadata about a device that its guest was asked to release.
"""
_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_LOOK_SECONDS = 0.1
_POLL_SECONDS = 1.0
"""Interval for reading the domain's XML, because an event may be lost."""


def has_region(hypervisor: Hypervisor, name: str, region: str) -> bool:
    """Whether the running domain has the region with this name in /dev/shm."""
    find = partial(region_device, name=region)
    return _alias(ours(hypervisor, name), find) is not None


def detach_region(hypervisor: Hypervisor, name: str, region: str, *, seconds: float = 60.0) -> None:
    """Detach the region from a running guest. Afterwards QEMU has unmapped it.

    The guest's kernel must release the device, and libvirt reports it by an event. Raises
    VicinalError after `seconds`, or if the guest refuses. The device then stays, but a late guest
    may still release it. The domain's definition is unchanged.
    """
    find = partial(region_device, name=region)
    _detach(hypervisor, name, f"the region {region}", find, seconds)


def attach_region(hypervisor: Hypervisor, name: str, region: SharedRegion) -> None:
    """Attach the region to a running guest, unless it has it."""
    domain = ours(hypervisor, name)
    if _alias(domain, partial(region_device, name=region.name)) is not None:
        return
    with explained(f"the region {region.name} cannot be attached to {name}"):
        domain.attachDeviceFlags(region_xml(region), _LIVE)


def has_pci_function(hypervisor: Hypervisor, name: str, function: PciFunction) -> bool:
    """Whether the running domain has this function of the host."""
    find = partial(pci_function_device, function=function)
    return _alias(ours(hypervisor, name), find) is not None


def detach_pci_function(
    hypervisor: Hypervisor, name: str, function: PciFunction, *, seconds: float = 60.0
) -> None:
    """Detach a function, as detach_region() does; libvirt binds it to its driver again."""
    find = partial(pci_function_device, function=function)
    _detach(hypervisor, name, f"the function {function.address}", find, seconds)


def attach_pci_function(hypervisor: Hypervisor, name: str, function: PciFunction) -> None:
    """Attach a function of the host to a running guest, unless it has it."""
    domain = ours(hypervisor, name)
    if _alias(domain, partial(pci_function_device, function=function)) is not None:
        return
    with explained(f"the function {function.address} cannot be attached to {name}"):
        domain.attachDeviceFlags(pci_function_xml(function), _LIVE)


def await_removal(hypervisor: Hypervisor, name: str, *, seconds: float = 20.0) -> None:
    """Wait until the guest has released a device that an earlier call asked for without waiting.

    Only then can the device be attached again, because a late guest would release the new device.
    Returns at once if no device was asked for, and after `seconds` in any case.
    """
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be read"):
        device = _asked(domain)
        deadline = time.monotonic() + seconds
        while device is not None and device in _aliases(domain):
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOK_SECONDS)
    if device is not None:
        _forget(domain)


def _detach(
    hypervisor: Hypervisor,
    name: str,
    what: str,
    find: Callable[[str], str | None],
    seconds: float,
) -> None:
    """Ask the guest to release the device that `find` finds in the domain's XML, and wait."""
    domain = ours(hypervisor, name)
    device = _alias(domain, find)
    if device is None:
        return
    with _answers(hypervisor, domain, device) as answers:
        _ask_once(domain, device, f"{what} cannot be detached from {name}")
        deadline = time.monotonic() + seconds
        while _alias(domain, find) is not None:
            with suppress(Empty):
                removed = answers.get(timeout=min(_POLL_SECONDS, seconds))
                if not removed:
                    _forget(domain)
                    raise VicinalError(
                        f"the guest {name} refuses to release {what}",
                        "see its console, and check whether a program there still uses it",
                    )
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"the guest {name} did not release {what} within {seconds:g} s",
                    "see its console: it may not have booted, or its kernel lacks PCI hotplug",
                )
    _forget(domain)


def _ask_once(domain: "libvirt.virDomain", device: str, what: str) -> None:
    """Ask the guest to release a device, unless an earlier call asked and got no answer.

    QEMU remembers the request, and a second request does harm: libvirt (9.0) crashed when the guest
    released the device at that moment. So the running domain's metadata records the request.
    """
    with explained(what):
        if _asked(domain) == device:
            return
        asked = ElementTree.tostring(ElementTree.Element("removal", device=device), "unicode")
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain.setMetadata(kind, asked, "vicinal-removal", _REMOVAL, _LIVE)
        try:
            domain.detachDeviceAlias(device, _LIVE)  # returns before the guest answers
        except libvirt.libvirtError:
            _forget(domain)
            raise


def _asked(domain: "libvirt.virDomain") -> str | None:
    """Alias of the device that the guest was asked to release and may still have."""
    try:
        text = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, _REMOVAL, _LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            raise
        return None
    return ElementTree.fromstring(text).get("device")


def _aliases(domain: "libvirt.virDomain") -> set[str | None]:
    """Aliases of all devices of the running domain."""
    return {each.get("name") for each in ElementTree.fromstring(domain.XMLDesc()).iter("alias")}


def _forget(domain: "libvirt.virDomain") -> None:
    with suppress(libvirt.libvirtError):  # the domain ended, and its metadata with it
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        # None removes the element; the annotation of setMetadata does not allow None.
        domain.setMetadata(kind, None, None, _REMOVAL, _LIVE)  # type: ignore[arg-type]


@contextmanager
def _answers(
    hypervisor: Hypervisor, domain: "libvirt.virDomain", device: str
) -> Iterator["Queue[bool]"]:
    """libvirt's answers about the device: True if it is gone, False if the guest refuses."""
    answers: Queue[bool] = Queue()

    def on_event(_: object, __: object, which: str, removed: bool) -> None:
        if which == device:
            answers.put(removed)

    events = {
        libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED: True,
        libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED: False,
    }
    numbers = []
    try:
        with explained("libvirt accepts no registration for its events"):
            for event, removed in events.items():
                numbers.append(
                    hypervisor.connection.domainEventRegisterAny(domain, event, on_event, removed)
                )
        yield answers
    finally:
        for number in numbers:
            with suppress(libvirt.libvirtError):
                hypervisor.connection.domainEventDeregisterAny(number)


def _alias(domain: "libvirt.virDomain", find: Callable[[str], str | None]) -> str | None:
    with explained(f"the domain {domain.name()} cannot be read"):
        return find(domain.XMLDesc())
