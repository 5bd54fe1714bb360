"""A machine in libvirt's words: the XML that it is defined by.

What libvirt has no words for goes to QEMU's command line, in the namespace that libvirt has for
that: wires of Unix sockets, and regions in files outside of /dev/shm.
"""

import os
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import (
    Bridge,
    Disk,
    DoorbellRegion,
    FileRegion,
    HostFunction,
    Interface,
    Multicast,
    NvdimmRegion,
    Region,
    SharedRegion,
    Tap,
    UdpWire,
    Wire,
    function_address,
)
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.layout import CONTROL_PORT, KERNEL_WORDS
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement

METADATA = "urn:vicinal:cluster"
"""XML namespace of what a domain says about its cluster."""
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"

_REGION_PORT = 1
"""Index of the PCIe port that is kept for the region: it comes and goes while the guest runs."""
_SPARE_PORTS = 4
"""More than the devices need, since no port can be added to a machine that runs."""
_OWN_DEVICES = 3
"""The virtio port's controller, the disk's, and what libvirt adds by itself."""
_SLOT = 0x1E
"""Of QEMU's own devices, beginning here on the root bus, which libvirt fills from the other end."""
_FUNCTIONS = 8
"""Of a slot, each of which can be a device."""

ElementTree.register_namespace("vicinal", METADATA)
ElementTree.register_namespace("qemu", _QEMU)


def domain_xml(spec: DomainSpec) -> str:
    """The definition of a domain."""
    kvm = spec.accelerator is Accelerator.KVM
    domain = Element("domain", type="kvm" if kvm else "qemu")
    _text(domain, "name", spec.name)
    _metadata(domain, spec)
    nvdimm = spec.region if isinstance(spec.region, NvdimmRegion) else None
    if nvdimm is not None:
        _text(domain, "maxMemory", spec.memory_mib * 1024 + nvdimm.size_bytes // 1024, slots="1")
    _text(domain, "memory", spec.memory_mib, unit="MiB")
    if spec.hugepages:
        SubElement(SubElement(domain, "memoryBacking"), "hugepages")
    _processors(domain, spec)
    _boot(domain, spec)
    features = SubElement(domain, "features")
    SubElement(features, "acpi")  # the power button, and devices that come and go
    SubElement(features, "apic")
    if isinstance(
        spec.region, DoorbellRegion
    ):  # KVM leaves to QEMU what an IOMMU that remaps interrupts has a part in
        SubElement(features, "ioapic", driver="qemu")
    _processor_model(domain, spec, numa=nvdimm is not None)
    _text(domain, "on_poweroff", "destroy")
    _text(domain, "on_reboot", "destroy")  # a guest whose kernel panics must not boot for ever
    _text(domain, "on_crash", "destroy")
    _devices(domain, spec)
    _user(domain, spec)
    _past_libvirt(domain, spec)
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode")


def region_xml(region: SharedRegion) -> str:
    """The device of a region alone, to attach it to a domain.

    It is called anew each time: QEMU lets go of a device's memory only some time after the device
    is gone, and aborts, guest and all, where memory of the same name comes before that.
    """
    devices = Element("devices")
    _region(devices, region)
    SubElement(devices[0], "alias", name=f"ua-region-{os.urandom(4).hex()}")
    return ElementTree.tostring(devices[0], encoding="unicode")


def function_xml(function: HostFunction) -> str:
    """The device of a function alone, to attach it to a domain."""
    devices = Element("devices")
    _function(devices, function)
    SubElement(devices[0], "alias", name=f"ua-function-{os.urandom(4).hex()}")
    return ElementTree.tostring(devices[0], encoding="unicode")


def identity(xml: str) -> tuple[str, str] | None:
    """Cluster and node that a domain's definition names; None: it is not one of ours."""
    found = ElementTree.fromstring(xml).find(f"metadata/{{{METADATA}}}machine")
    if found is None:
        return None
    return found.get("cluster", ""), found.get("node", "")


def region_device(xml: str, name: str) -> str | None:
    """Alias of the device by which a domain has the region `name`; None if it does not have it."""
    for device in ElementTree.fromstring(xml).iterfind("devices/shmem"):
        if device.get("name") == name:
            return _alias(device)
    return None


def function_device(xml: str, function: HostFunction) -> str | None:
    """Alias of the device by which a domain has that function; None if it does not have it."""
    for device in ElementTree.fromstring(xml).iterfind("devices/hostdev[@type='pci']"):
        if function_address(device) == function.address:
            return _alias(device)
    return None


def _alias(device: Element) -> str:
    alias = device.find("alias")
    return "" if alias is None else alias.get("name", "")


def is_emulated(xml: str) -> bool:
    """Whether its processors are QEMU's own (TCG), and not the host's."""
    return ElementTree.fromstring(xml).get("type") == "qemu"


def has_device_region(xml: str) -> bool:
    """Whether a domain has a region as an ivshmem device."""
    return ElementTree.fromstring(xml).find("devices/shmem") is not None


def _metadata(domain: Element, spec: DomainSpec) -> None:
    metadata = SubElement(domain, "metadata")
    SubElement(metadata, f"{{{METADATA}}}machine", cluster=spec.cluster, node=spec.node)


def _processors(domain: Element, spec: DomainSpec) -> None:
    # An emulated guest with one processor for ever gets no barriers and no atomic instructions,
    # since nobody inside could tell; but others share its memory: so there may be a second.
    most = max(2, spec.processors) if spec.accelerator is Accelerator.TCG else spec.processors
    count = _text(domain, "vcpu", most, placement="static")
    if most != spec.processors:
        count.set("current", str(spec.processors))
    place(domain, spec.placement)


def place(domain: Element, placement: Placement) -> None:
    """Say where on the host a domain runs, instead of what it said before."""
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
    _text(system, "type", "hvm", arch="x86_64", machine="q35")
    if isinstance(spec.boot, DirectBoot):
        _text(system, "kernel", spec.boot.kernel)
        _text(system, "initrd", spec.boot.initrd)
        words = [*KERNEL_WORDS]
        if isinstance(spec.region, DoorbellRegion):
            words += ["vicinal.doorbell=1", "intel_iommu=on"]
        _text(system, "cmdline", " ".join([*words, *spec.boot.words]))
    else:
        SubElement(system, "boot", dev="hd")


def _processor_model(domain: Element, spec: DomainSpec, *, numa: bool) -> None:
    if spec.accelerator is Accelerator.KVM:
        model = SubElement(domain, "cpu", mode="host-passthrough")
    else:
        model = SubElement(domain, "cpu", mode="maximum")
        # Without these the C library copies by vectors, not by emulated single bytes.
        for feature in ("erms", "fsrm"):
            SubElement(model, "feature", policy="disable", name=feature)
    if numa:  # QEMU wants it of a machine that memory modules can be put into
        most = max(2, spec.processors) if spec.accelerator is Accelerator.TCG else spec.processors
        cell = SubElement(model, "numa")
        memory = {"id": "0", "memory": str(spec.memory_mib), "unit": "MiB"}
        SubElement(cell, "cell", memory, cpus=_set(range(most)))


def _devices(domain: Element, spec: DomainSpec) -> None:
    devices = SubElement(domain, "devices")
    SubElement(devices, "controller", type="usb", model="none")
    SubElement(devices, "controller", type="pci", index="0", model="pcie-root")
    cards = sum(not isinstance(interface, Wire) for interface in spec.interfaces)
    ports = _REGION_PORT + _OWN_DEVICES + cards + len(spec.functions) + _SPARE_PORTS
    for number in range(ports):
        SubElement(devices, "controller", type="pci", index=str(number + 1), model="pcie-root-port")
    if isinstance(spec.boot, Disk):
        disk = SubElement(devices, "disk", type="file", device="disk")
        SubElement(disk, "driver", name="qemu", type=spec.boot.format)
        SubElement(disk, "source", file=str(spec.boot.file))
        SubElement(disk, "target", dev="vda", bus="virtio")
    for interface in spec.interfaces:
        _interface(devices, interface)
    for kind in ("serial", "console"):
        console = SubElement(devices, kind, type="file")
        SubElement(console, "source", path=str(spec.console), append="off")
        target = {"port": "0"} if kind == "serial" else {"type": "serial", "port": "0"}
        SubElement(console, "target", target)
    if spec.control is not None:
        channel = SubElement(devices, "channel", type="unix")
        SubElement(channel, "source", mode="bind", path=str(spec.control))
        SubElement(channel, "target", type="virtio", name=CONTROL_PORT)
    SubElement(SubElement(devices, "video"), "model", type="none")
    for function in spec.functions:
        _function(devices, function)
    # A balloon would take away memory that was reserved.
    SubElement(devices, "memballoon", model="none")
    _region(devices, spec.region)
    if isinstance(spec.region, DoorbellRegion):  # vfio-pci takes no device without
        remapper = SubElement(devices, "iommu", model="intel")
        SubElement(remapper, "driver", intremap="on", caching_mode="on")


def _interface(devices: Element, interface: Interface) -> None:
    match interface:
        case Bridge():
            card = SubElement(devices, "interface", type="bridge")
            SubElement(card, "mac", address=interface.mac)
            SubElement(card, "source", bridge=interface.bridge)
        case Tap():
            card = SubElement(devices, "interface", type="ethernet")
            SubElement(card, "mac", address=interface.mac)
            SubElement(card, "target", dev=interface.tap, managed="no")
        case Multicast():
            card = SubElement(devices, "interface", type="mcast")
            SubElement(card, "mac", address=interface.mac)
            SubElement(card, "source", address=interface.group, port=str(interface.port))
        case UdpWire():
            card = SubElement(devices, "interface", type="udp")
            SubElement(card, "mac", address=interface.mac)
            port = str(interface.port)
            source = SubElement(card, "source", address=interface.other, port=port)
            SubElement(source, "local", address=interface.own, port=port)
        case Wire():
            return  # past libvirt
    SubElement(card, "model", type="virtio")
    SubElement(card, "rom", enabled="no")


def _function(devices: Element, function: HostFunction) -> None:
    # managed: libvirt gives it to vfio-pci, and back to its driver afterwards.
    device = SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
    source = SubElement(device, "source")
    SubElement(source, "address", function.address_parts)


def _region(devices: Element, region: Region | None) -> None:
    if isinstance(region, SharedRegion | DoorbellRegion):
        # With the role of a peer, libvirt would refuse to save it: see lifecycle.save().
        device = SubElement(devices, "shmem", name=region.name, role="master")
        if isinstance(region, SharedRegion):
            SubElement(device, "model", type="ivshmem-plain")
            _text(device, "size", region.size_bytes >> 20, unit="M")
        else:
            SubElement(device, "model", type="ivshmem-doorbell")
            SubElement(device, "server", path=str(region.server))
            SubElement(device, "msi", vectors=str(region.vectors), ioeventfd="on")
        address = {"domain": "0x0000", "bus": f"0x{_REGION_PORT:02x}", "slot": "0x00"}
        SubElement(device, "address", address, type="pci", function="0x0")
    elif isinstance(region, NvdimmRegion):
        module = SubElement(devices, "memory", model="nvdimm", access="shared")
        _text(SubElement(module, "source"), "path", region.path)
        target = SubElement(module, "target")
        _text(target, "size", region.size_bytes >> 10, unit="KiB")
        _text(target, "node", 0)


def _user(domain: Element, spec: DomainSpec) -> None:
    if spec.user is not None:
        label = SubElement(domain, "seclabel", type="static", model="dac", relabel="yes")
        _text(label, "label", "+{}:+{}".format(*spec.user))


def _past_libvirt(domain: Element, spec: DomainSpec) -> None:
    arguments: list[str] = []
    # Addresses of their own: QEMU would take the first free ones, and libvirt its own later.
    addresses = (
        f"multifunction=on,addr=0x{slot:x}.{function}"
        for slot in range(_SLOT, 0, -1)
        for function in range(_FUNCTIONS)
    )
    for number, interface in enumerate(spec.interfaces):
        if isinstance(interface, Wire):
            wire = f"wire{number}"
            ends = f"local.type=unix,local.path={_escaped(interface.own)}"
            ends += f",remote.type=unix,remote.path={_escaped(interface.other)}"
            arguments += ["-netdev", f"dgram,id={wire},{ends}"]
            card = f"virtio-net-pci,netdev={wire},mac={interface.mac},romfile="
            arguments += ["-device", f"{card},{next(addresses)}"]
    if isinstance(spec.region, FileRegion):
        memory = f"mem-path={_escaped(spec.region.path)},size={spec.region.size_bytes},share=on"
        arguments += ["-object", f"memory-backend-file,id=region,{memory}"]
        arguments += ["-device", f"ivshmem-plain,memdev=region,{next(addresses)}"]
    if arguments:
        line = SubElement(domain, f"{{{_QEMU}}}commandline")
        for argument in arguments:
            SubElement(line, f"{{{_QEMU}}}arg", value=argument)


def _text(parent: Element, tag: str, text: str | int | Path, **attributes: str) -> Element:
    element = SubElement(parent, tag, attributes)
    element.text = str(text)
    return element


def _set(numbers: Collection[int]) -> str:
    return ",".join(str(number) for number in sorted(numbers))


def _escaped(path: Path) -> str:
    """A path as QEMU's option syntax wants it."""
    return str(path).replace(",", ",,")
