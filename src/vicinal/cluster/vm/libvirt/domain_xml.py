"""A VM's definition as libvirt's XML.

libvirt has no elements for wires of Unix sockets and for regions in files outside of /dev/shm.
These devices go to QEMU's command line, through libvirt's QEMU namespace.
"""

import os
from collections.abc import Collection
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import (
    REGION_PORT,
    Console,
    Disk,
    FileRegion,
    Iommu,
    PciFunction,
    Port,
    SharedRegion,
    Wire,
    add_text,
    pci_function_address,
)
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.layout import CONTROL_PORT
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement

METADATA = "urn:vicinal:cluster"
"""XML namespace of the metadata that names a domain's cluster and node."""
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"

_SPARE_PORTS = 4
"""Additional PCIe ports, because no port can be added to a running VM."""
_OWN_DEVICES = 3
"""The controllers of the virtio port and of the disk, and a device that libvirt adds by itself."""
_SLOT = 0x1E
"""First slot on the root bus for devices that bypass libvirt, which fills the bus from the other
end.
"""
_FUNCTIONS = 8
"""Number of functions of a slot, each of which can be a device."""

ElementTree.register_namespace("vicinal", METADATA)
ElementTree.register_namespace("qemu", _QEMU)


def domain_xml(spec: DomainSpec) -> str:
    """The definition of a domain."""
    kvm = spec.accelerator is Accelerator.KVM
    domain = Element("domain", type="kvm" if kvm else "qemu")
    add_text(domain, "name", spec.name)
    _metadata(domain, spec)
    if spec.module_bytes:
        add_text(domain, "maxMemory", spec.most_memory_bytes // 1024, slots="1")
    add_text(domain, "memory", spec.memory_mib, unit="MiB")
    if spec.hugepages:
        SubElement(SubElement(domain, "memoryBacking"), "hugepages")
    spec.cpu.add_count(domain)
    place(domain, spec.placement)
    _boot(domain, spec)
    features = SubElement(domain, "features")
    SubElement(features, "acpi")  # for the power button and for hotplug
    SubElement(features, "apic")
    if spec.interrupts:
        SubElement(features, "ioapic", driver="qemu")
    model = spec.cpu.add_model(domain)
    if spec.module_bytes:  # QEMU requires it of a VM with slots for memory modules
        memory = {"id": "0", "memory": str(spec.memory_mib), "unit": "MiB"}
        SubElement(SubElement(model, "numa"), "cell", memory, cpus=_set(range(spec.cpu.most)))
    add_text(domain, "on_poweroff", "destroy")
    add_text(domain, "on_reboot", "destroy")  # otherwise a guest that panics reboots for ever
    add_text(domain, "on_crash", "destroy")
    _devices(domain, spec)
    _user(domain, spec)
    _past_libvirt(domain, spec)
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode")


def region_xml(region: SharedRegion) -> str:
    """The XML of a region's device, for attaching it to a domain.

    The alias is new each time. QEMU frees a device's memory only some time after the device is
    gone, and aborts the guest if memory with the same name is added before that.
    """
    device = region.element()
    SubElement(device, "alias", name=f"ua-region-{os.urandom(4).hex()}")
    return ElementTree.tostring(device, encoding="unicode")


def pci_function_xml(function: PciFunction) -> str:
    """The XML of a function's device, for attaching it to a domain."""
    device = function.element()
    SubElement(device, "alias", name=f"ua-function-{os.urandom(4).hex()}")
    return ElementTree.tostring(device, encoding="unicode")


def identity(xml: str) -> tuple[str, str] | None:
    """Cluster and node in a domain's metadata; None: the domain is not Vicinal's."""
    found = ElementTree.fromstring(xml).find(f"metadata/{{{METADATA}}}vm")
    if found is None:
        return None
    return found.get("cluster", ""), found.get("node", "")


def region_device(xml: str, name: str) -> str | None:
    """Alias of the device that has the region `name`; None if the domain has no such device."""
    for device in ElementTree.fromstring(xml).iterfind("devices/shmem"):
        if device.get("name") == name:
            return _alias(device)
    return None


def pci_function_device(xml: str, function: PciFunction) -> str | None:
    """Alias of the device that has this function; None if the domain has no such device."""
    for device in ElementTree.fromstring(xml).iterfind("devices/hostdev[@type='pci']"):
        if pci_function_address(device) == function.address:
            return _alias(device)
    return None


def _alias(device: Element) -> str:
    alias = device.find("alias")
    return "" if alias is None else alias.get("name", "")


def is_emulated(xml: str) -> bool:
    """Whether QEMU emulates its processors (TCG)."""
    return ElementTree.fromstring(xml).get("type") == "qemu"


def has_device_region(xml: str) -> bool:
    """Whether a domain has a region as an ivshmem device."""
    return ElementTree.fromstring(xml).find("devices/shmem") is not None


def _metadata(domain: Element, spec: DomainSpec) -> None:
    metadata = SubElement(domain, "metadata")
    SubElement(metadata, f"{{{METADATA}}}vm", cluster=spec.cluster, node=spec.node)


def place(domain: Element, placement: Placement) -> None:
    """Replace the placement in a domain's XML."""
    for tag in ("cputune", "numatune"):
        for found in domain.findall(tag):
            domain.remove(found)
    if placement.processors or placement.emulator:
        tune = SubElement(domain, "cputune")
        for number, where in enumerate(placement.processors):
            SubElement(tune, "vcpupin", vcpu=str(number), cpuset=_set(where))
        if placement.emulator:
            SubElement(tune, "emulatorpin", cpuset=_set(placement.emulator))
    if placement.memory_nodes:
        tune = SubElement(domain, "numatune")
        SubElement(tune, "memory", mode="strict", nodeset=_set(placement.memory_nodes))


def _boot(domain: Element, spec: DomainSpec) -> None:
    if spec.firmware_files:
        information = SubElement(domain, "sysinfo", type="fwcfg")
        for name, file in spec.firmware_files:
            SubElement(information, "entry", name=name, file=str(file))
    system = SubElement(domain, "os")
    add_text(system, "type", "hvm", arch="x86_64", machine="q35")
    if isinstance(spec.boot, DirectBoot):
        add_text(system, "kernel", spec.boot.kernel)
        add_text(system, "initrd", spec.boot.initrd)
        add_text(system, "cmdline", spec.kernel_line)
    else:
        SubElement(system, "boot", dev="hd")


def _devices(domain: Element, spec: DomainSpec) -> None:
    devices = SubElement(domain, "devices")
    SubElement(devices, "controller", type="usb", model="none")
    SubElement(devices, "controller", type="pci", index="0", model="pcie-root")
    cards = [each.element() for each in spec.interfaces if not isinstance(each, Wire)]
    ports = REGION_PORT + _OWN_DEVICES + len(cards) + len(spec.pci_functions) + _SPARE_PORTS
    for number in range(ports):
        SubElement(devices, "controller", type="pci", index=str(number + 1), model="pcie-root-port")
    if isinstance(spec.boot, Disk):
        devices.append(spec.boot.element())
    devices.extend([*cards, *Console(spec.console).elements()])
    if spec.control is not None:
        devices.append(Port(CONTROL_PORT, spec.control).element())
    SubElement(SubElement(devices, "video"), "model", type="none")
    devices.extend(function.element() for function in spec.pci_functions)
    # A balloon would take memory away that was reserved.
    SubElement(devices, "memballoon", model="none")
    if spec.region is not None and not isinstance(spec.region, FileRegion):
        devices.append(spec.region.element())
    if spec.interrupts:
        devices.append(Iommu().element())


def _user(domain: Element, spec: DomainSpec) -> None:
    if spec.user is not None:
        label = SubElement(domain, "seclabel", type="static", model="dac", relabel="yes")
        add_text(label, "label", "+{}:+{}".format(*spec.user))


def _past_libvirt(domain: Element, spec: DomainSpec) -> None:
    arguments: list[str] = []
    # With explicit addresses, because QEMU takes the first free ones, which libvirt uses later.
    addresses = (
        f"0x{slot:x}.{function}" for slot in range(_SLOT, 0, -1) for function in range(_FUNCTIONS)
    )
    past = [
        each.options(f"wire{number}")
        for number, each in enumerate(spec.interfaces)
        if isinstance(each, Wire)
    ]
    if isinstance(spec.region, FileRegion):
        past.append(spec.region.options())
    for behind, device in past:
        arguments += [*behind.words, *device.at(next(addresses)).words]
    if arguments:
        line = SubElement(domain, f"{{{_QEMU}}}commandline")
        for argument in arguments:
            SubElement(line, f"{{{_QEMU}}}arg", value=argument)


def _set(numbers: Collection[int]) -> str:
    return ",".join(str(number) for number in sorted(numbers))
