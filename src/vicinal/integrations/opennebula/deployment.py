"""The domain that OpenNebula's KVM driver is to start, with the region in it.

All else stays as OpenNebula wrote it. The device is put in where the parser says that the domain
ends, with <devices> of its own: OpenNebula writes several of these, too.
"""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.documents import parse, shown
from vicinal.integrations.opennebula.editing import find_tags, replaced
from vicinal.integrations.opennebula.hypervisor import domain_name
from vicinal.integrations.opennebula.request import RegionRequest

MODEL = "ivshmem-plain"
"""QEMU's device for a region."""


def add_region(document: bytes, vm: int, request: RegionRequest) -> bytes:
    """The deployment file with the region as an ivshmem device; the same where it is there.

    Raises VicinalError for the file of another VM, and for one that has a device of that name that
    is not the same.
    """
    domain = parse(document, "the deployment file", "domain")
    name = domain.findtext("name") or ""
    if name != domain_name(vm):
        raise VicinalError(
            f"the deployment file is that of {shown(name)} instead of {domain_name(vm)}",
            "see that the driver is called as OpenNebula's KVM driver is",
        )
    wanted = _device(request)
    there = [each for each in domain.iterfind("devices/shmem") if each.get("name") == request.name]
    if there:
        if len(there) == 1 and _same(there[0], wanted):
            return document
        raise VicinalError(
            f"the deployment file has a device of the name {request.name} that is another",
            "take it out of the VM's RAW section",
        )
    more = Element("devices")
    more.append(wanted)
    (end,) = (tag.end_tag for tag in find_tags(document, "domain"))
    return replaced(document, end, end, ElementTree.tostring(more) + b"\n")


def _device(request: RegionRequest) -> Element:
    # The role of a peer: libvirt and QEMU then refuse to save, snapshot or move the machine with
    # the region in it, whose memory is other machines' too.
    device = Element("shmem", name=request.name, role="peer")
    SubElement(device, "model", type=MODEL)
    SubElement(device, "size", unit="M").text = str(request.size_bytes >> 20)
    return device


def _same(device: Element, wanted: Element) -> bool:
    def words(element: Element) -> tuple[object, ...]:
        model, size = element.find("model"), element.find("size")
        return (
            element.get("role"),
            None if model is None else model.get("type"),
            None if size is None else (size.get("unit"), size.text),
            sorted(str(each.tag) for each in element),
        )

    return words(device) == words(wanted)
