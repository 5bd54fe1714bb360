"""The region of a domain that runs, taken away and given back: the guest has a say in both."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from xml.etree import ElementTree

from vicinal.cluster.domains.binding import explained, libvirt
from vicinal.cluster.domains.connection import Hypervisor
from vicinal.cluster.domains.domain_spec import SharedRegion
from vicinal.cluster.domains.domain_xml import region_device, region_xml
from vicinal.cluster.domains.lifecycle import ours
from vicinal.errors import VicinalError

_REMOVAL = "urn:vicinal:removal"
"""XML namespace of what a running domain says about a device that its guest was asked for."""
_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_POLL_SECONDS = 1.0
"""An event may be lost; the domain's own description is not."""


def has_region(hypervisor: Hypervisor, name: str, region: str) -> bool:
    """Whether the domain, as it runs now, has the region of that name in /dev/shm."""
    return _device(ours(hypervisor, name), region) is not None


def detach_region(hypervisor: Hypervisor, name: str, region: str, *, seconds: float = 60.0) -> None:
    """Take the region from a running guest; when this returns QEMU has unmapped it.

    The guest's kernel has to let go of it, and libvirt's event says that it did. Raises
    VicinalError after `seconds`, or if the guest refuses, with the device still there; a guest
    that was only late gives it up later all the same. The definition stays as it is.
    """
    domain = ours(hypervisor, name)
    device = _device(domain, region)
    if device is None:
        return
    with _answers(hypervisor, domain, device) as answers:
        _ask_once(domain, device, f"the region {region} cannot be detached from {name}")
        deadline = time.monotonic() + seconds
        while _device(domain, region) is not None:
            with suppress(Empty):
                removed = answers.get(timeout=min(_POLL_SECONDS, seconds))
                if not removed:
                    _forget(domain)
                    raise VicinalError(
                        f"the guest {name} refuses to let go of the region {region}",
                        "see its console, and whether something there still uses the region",
                    )
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"the guest {name} did not let go of the region {region} in {seconds:g} s",
                    "see its console: it may not have booted, or its kernel lacks PCI hotplug",
                )
    _forget(domain)


def attach_region(hypervisor: Hypervisor, name: str, region: SharedRegion) -> None:
    """Give the region to a running guest; nothing where it has it."""
    domain = ours(hypervisor, name)
    if _device(domain, region.name) is not None:
        return
    with explained(f"the region {region.name} cannot be attached to {name}"):
        domain.attachDeviceFlags(region_xml(region), _LIVE)


def _ask_once(domain: "libvirt.virDomain", device: str, what: str) -> None:
    """Ask the guest for a device, unless an earlier call did and got no answer.

    QEMU remembers the question, and a second one does harm: libvirt (9.0) crashed where the guest
    gave the device up at just that moment. So the domain says what it was asked, while it runs.
    """
    with explained(what):
        try:
            text = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, _REMOVAL, _LIVE)
            if ElementTree.fromstring(text).get("device") == device:
                return
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                raise
        asked = ElementTree.tostring(ElementTree.Element("removal", device=device), "unicode")
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain.setMetadata(kind, asked, "vicinal-removal", _REMOVAL, _LIVE)
        try:
            domain.detachDeviceAlias(device, _LIVE)  # this one does not wait
        except libvirt.libvirtError:
            _forget(domain)
            raise


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


def _device(domain: "libvirt.virDomain", region: str) -> str | None:
    with explained(f"the domain {domain.name()} cannot be looked at"):
        return region_device(domain.XMLDesc(), region)
