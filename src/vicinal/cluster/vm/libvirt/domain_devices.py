"""Devices of a domain that runs, taken away and given back: the guest has a say in both.

The region is one, and a function of the host's another.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, Queue
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import HostFunction, SharedRegion
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_xml import (
    function_device,
    function_xml,
    region_device,
    region_xml,
)
from vicinal.cluster.vm.libvirt.lifecycle import ours

_REMOVAL = "urn:vicinal:removal"
"""XML namespace of what a running domain says about a device that its guest was asked for."""
_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_LOOK_SECONDS = 0.1
_POLL_SECONDS = 1.0
"""An event may be lost; the domain's own description is not."""


def has_region(hypervisor: Hypervisor, name: str, region: str) -> bool:
    """Whether the domain, as it runs now, has the region of that name in /dev/shm."""
    find = partial(region_device, name=region)
    return _alias(ours(hypervisor, name), find) is not None


def detach_region(hypervisor: Hypervisor, name: str, region: str, *, seconds: float = 60.0) -> None:
    """Take the region from a running guest; when this returns QEMU has unmapped it.

    The guest's kernel has to let go of it, and libvirt's event says that it did. Raises
    VicinalError after `seconds`, or if the guest refuses, with the device still there; a guest
    that was only late gives it up later all the same. The definition stays as it is.
    """
    find = partial(region_device, name=region)
    _detach(hypervisor, name, f"the region {region}", find, seconds)


def attach_region(hypervisor: Hypervisor, name: str, region: SharedRegion) -> None:
    """Give the region to a running guest; nothing where it has it."""
    domain = ours(hypervisor, name)
    if _alias(domain, partial(region_device, name=region.name)) is not None:
        return
    with explained(f"the region {region.name} cannot be attached to {name}"):
        domain.attachDeviceFlags(region_xml(region), _LIVE)


def has_function(hypervisor: Hypervisor, name: str, function: HostFunction) -> bool:
    """Whether the domain, as it runs now, has that function of the host's."""
    find = partial(function_device, function=function)
    return _alias(ours(hypervisor, name), find) is not None


def detach_function(
    hypervisor: Hypervisor, name: str, function: HostFunction, *, seconds: float = 60.0
) -> None:
    """Take a function from a running guest, as detach_region(); libvirt gives it to its driver."""
    find = partial(function_device, function=function)
    _detach(hypervisor, name, f"the function {function.address}", find, seconds)


def attach_function(hypervisor: Hypervisor, name: str, function: HostFunction) -> None:
    """Give a function of the host's to a running guest; nothing where it has it."""
    domain = ours(hypervisor, name)
    if _alias(domain, partial(function_device, function=function)) is not None:
        return
    with explained(f"the function {function.address} cannot be attached to {name}"):
        domain.attachDeviceFlags(function_xml(function), _LIVE)


def await_removal(hypervisor: Hypervisor, name: str, *, seconds: float = 20.0) -> None:
    """Wait until the guest has given up what somebody asked it for, who did not wait himself.

    So that it can be given back: what is attached still goes as soon as the guest hears of it.
    Nothing where it was asked for nothing; after `seconds` it is not waited for any longer.
    """
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be looked at"):
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
    """Ask the guest for the device that `find` sees in the domain's XML, until it is gone."""
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
                        f"the guest {name} refuses to let go of {what}",
                        "see its console, and whether something there still uses it",
                    )
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"the guest {name} did not let go of {what} in {seconds:g} s",
                    "see its console: it may not have booted, or its kernel lacks PCI hotplug",
                )
    _forget(domain)


def _ask_once(domain: "libvirt.virDomain", device: str, what: str) -> None:
    """Ask the guest for a device, unless an earlier call did and got no answer.

    QEMU remembers the question, and a second one does harm: libvirt (9.0) crashed where the guest
    gave the device up at just that moment. So the domain says what it was asked, while it runs.
    """
    with explained(what):
        if _asked(domain) == device:
            return
        asked = ElementTree.tostring(ElementTree.Element("removal", device=device), "unicode")
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain.setMetadata(kind, asked, "vicinal-removal", _REMOVAL, _LIVE)
        try:
            domain.detachDeviceAlias(device, _LIVE)  # this one does not wait
        except libvirt.libvirtError:
            _forget(domain)
            raise


def _asked(domain: "libvirt.virDomain") -> str | None:
    """Alias of the device that the guest was asked for, and of which nobody saw it go."""
    try:
        text = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, _REMOVAL, _LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            raise
        return None
    return ElementTree.fromstring(text).get("device")


def _aliases(domain: "libvirt.virDomain") -> set[str | None]:
    """Those of all devices that the domain has, as it runs now."""
    return {each.get("name") for each in ElementTree.fromstring(domain.XMLDesc()).iter("alias")}


def _forget(domain: "libvirt.virDomain") -> None:
    with suppress(libvirt.libvirtError):  # ended meanwhile, and with it what it said
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        # None takes it away; the annotation knows nothing of that.
        domain.setMetadata(kind, None, None, _REMOVAL, _LIVE)  # type: ignore[arg-type]


@contextmanager
def _answers(
    hypervisor: Hypervisor, domain: "libvirt.virDomain", device: str
) -> Iterator["Queue[bool]"]:
    """What libvirt says about the device: True, it is gone; False, the guest refuses."""
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
        with explained("libvirt cannot be asked for its events"):
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
    with explained(f"the domain {domain.name()} cannot be looked at"):
        return find(domain.XMLDesc())
