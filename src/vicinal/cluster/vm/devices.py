"""The devices of a virtual machine, each described once: for QEMU, for libvirt, or for both.

`options()` gives the device as QEMU takes it: as words of a command line, or as requests to the
monitor of a QEMU that runs. `element()` gives the device as libvirt takes it, in XML. libvirt knows
no element for a wire of Unix sockets and for a region outside of /dev/shm: a domain hands their
options to QEMU past libvirt. Cards of open files belong to guests whose QEMU Vicinal starts itself.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element, SubElement

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.region_device import RegionDevice

REGION_PORT = 1
"""Index of the PCIe port that a domain keeps for its region, which comes and goes while the guest
runs."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_PCI_PARTS = ("domain", "bus", "slot", "function")

# --- QEMU's and libvirt's syntax -------------------------------------------------------------

_KINDS = ("backend", "driver", "qom-type", "type")
"""Properties that come first, of which QEMU's command line has only the value."""
_PLUGGED = {"device": "device_add", "object": "object-add"}

Properties = dict[str, str | int | bool]
"""Properties of one of QEMU's options, in the order of the command line."""


@dataclass(frozen=True)
class Option:
    """An option of QEMU with properties, such as a device."""

    name: str
    properties: Properties

    @property
    def words(self) -> list[str]:
        """The option on QEMU's command line."""
        properties = (_property(key, value) for key, value in self.properties.items())
        return [f"-{self.name}", ",".join(properties)]

    def at(self, address: str) -> "Option":
        """The device at a PCI address of its own, `SLOT.FUNCTION` on the root bus."""
        return Option(self.name, {**self.properties, "multifunction": True, "addr": address})

    @property
    def request(self) -> tuple[str, dict[str, object]]:
        """What plugs a device, or the memory behind one, into a QEMU that runs."""
        return _PLUGGED[self.name], dict(self.properties)


def _property(key: str, value: str | int | bool) -> str:
    if isinstance(value, bool):
        value = "on" if value else "off"
    text = str(value).replace(",", ",,")
    return text if key in _KINDS else f"{key}={text}"


def add_text(parent: Element, tag: str, text: str | int | Path, **attributes: str) -> Element:
    """Add an element with a text to another one."""
    element = SubElement(parent, tag, attributes)
    element.text = str(text)
    return element


def check_name(what: str, name: str) -> None:
    """Raise VicinalError for a name that libvirt or a file system could misread."""
    if not _NAME.fullmatch(name):
        raise VicinalError(
            f"{what} cannot be called '{name}'",
            "use letters, digits, dots, hyphens and underscores, 63 at most",
        )


# --- the region ------------------------------------------------------------------------------


class _Region:
    """What the devices of a region may ask of the rest of the machine."""

    kernel_words: ClassVar[tuple[str, ...]] = ()
    """More of the kernel's command line."""
    interrupts: ClassVar[bool] = False
    """Whether the device interrupts. Then the guest has an IOMMU: without one its kernel lets no
    program have an interrupt."""

    @property
    def module_bytes(self) -> int:
        """Size of the memory module, for which the board has a slot; 0: the device is none."""
        return 0


@dataclass(frozen=True)
class SharedRegion(_Region):
    """A region in /dev/shm, by its name there, as the memory of an ivshmem device (<shmem>).

    It can be detached and attached while the machine runs.
    """

    name: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_name("the region", self.name)
        _check_power_of_two(self.name, self.size_bytes)

    @property
    def path(self) -> Path:
        """The region's file on the host."""
        return Path("/dev/shm") / self.name

    def element(self) -> Element:
        device = _shmem(self.name, RegionDevice.IVSHMEM)
        add_text(device, "size", self.size_bytes >> 20, unit="M")
        return _at_region_port(device)


@dataclass(frozen=True)
class DoorbellRegion(_Region):
    """A region as the memory of an ivshmem device that can interrupt: ivshmem-doorbell (<shmem>).

    The server (vicinal.cluster.vm.qemu.doorbell) must run when the machine starts, which gets the
    memory from it.
    """

    kernel_words: ClassVar[tuple[str, ...]] = ("vicinal.doorbell=1", "intel_iommu=on")
    interrupts: ClassVar[bool] = True

    name: str
    server: Path
    """Its socket."""
    vectors: int
    """Interrupts of the machine; the server's clients have so many."""

    def __post_init__(self) -> None:
        check_name("the region", self.name)

    def options(self) -> list[Option]:
        server: Properties = {"backend": "socket", "id": "doorbell", "path": str(self.server)}
        device: Properties = {"driver": RegionDevice.DOORBELL.value, "chardev": "doorbell"}
        return [Option("chardev", server), Option("device", {**device, "vectors": self.vectors})]

    def element(self) -> Element:
        device = _shmem(self.name, RegionDevice.DOORBELL)
        SubElement(device, "server", path=str(self.server))
        SubElement(device, "msi", vectors=str(self.vectors), ioeventfd="on")
        return _at_region_port(device)


@dataclass(frozen=True)
class FileRegion(_Region):
    """A region in a file anywhere, such as on hugetlbfs, as the memory of an ivshmem device.

    libvirt's <shmem> knows /dev/shm alone, so QEMU gets the device past libvirt, which can then
    not detach it.
    """

    path: Path
    size_bytes: int

    def __post_init__(self) -> None:
        _check_power_of_two(str(self.path), self.size_bytes)

    def options(self) -> list[Option]:
        return _memory_device(RegionDevice.IVSHMEM, self.path, self.size_bytes)


@dataclass(frozen=True)
class NvdimmRegion(_Region):
    """A region in a file, as a persistent memory module: /dev/dax in a guest, mapped write-back."""

    path: Path
    size_bytes: int

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.size_bytes % (2 << 20):
            raise VicinalError(
                f"a memory module of {self.size_bytes} bytes cannot be made",
                "choose a multiple of 2 MiB",
            )

    @property
    def module_bytes(self) -> int:
        return self.size_bytes

    def options(self) -> list[Option]:
        return _memory_device(RegionDevice.NVDIMM, self.path, self.size_bytes)

    def element(self) -> Element:
        module = Element("memory", model="nvdimm", access="shared")
        add_text(SubElement(module, "source"), "path", self.path)
        target = SubElement(module, "target")
        add_text(target, "size", self.size_bytes >> 10, unit="KiB")
        add_text(target, "node", 0)
        return module


Region = SharedRegion | DoorbellRegion | FileRegion | NvdimmRegion


class Iommu:
    """Translates for a device that interrupts: the guest's vfio-pci takes no device without it."""

    def options(self) -> list[Option]:
        device: Properties = {"driver": "intel-iommu", "intremap": True, "caching-mode": True}
        return [Option("device", device)]

    def element(self) -> Element:
        device = Element("iommu", model="intel")
        SubElement(device, "driver", intremap="on", caching_mode="on")
        return device


def _memory_device(device: RegionDevice, path: Path, size_bytes: int) -> list[Option]:
    memory: Properties = {"qom-type": "memory-backend-file", "id": "region"}
    return [
        Option("object", {**memory, "mem-path": str(path), "size": size_bytes, "share": True}),
        Option("device", {"driver": device.value, "memdev": "region"}),
    ]


def _shmem(name: str, device: RegionDevice) -> Element:
    # With the role of a peer, libvirt would refuse to save it: see lifecycle.save().
    element = Element("shmem", name=name, role="master")
    SubElement(element, "model", type=device.value)
    return element


def _at_region_port(device: Element) -> Element:
    address = {"domain": "0x0000", "bus": f"0x{REGION_PORT:02x}", "slot": "0x00"}
    SubElement(device, "address", address, type="pci", function="0x0")
    return device


def _check_power_of_two(name: str, size_bytes: int) -> None:
    # The memory of a PCI device is; libvirt counts in MiB besides.
    if size_bytes < 1 << 20 or size_bytes & (size_bytes - 1):
        raise VicinalError(
            f"the region {name} is {size_bytes} bytes long, and a PCI device's memory is a power of"
            " two, of 1 MiB at least",
            "create it with --for-guests",
        )


# --- functions of the host -------------------------------------------------------------------


@dataclass(frozen=True)
class HostFunction:
    """A PCI function of the host's, such as an SR-IOV virtual function, given to the machine.

    `address` is what lspci -D shows: 0000:03:00.1.
    """

    address: str

    def __post_init__(self) -> None:
        if not _PCI_ADDRESS.fullmatch(self.address):
            raise VicinalError(
                f"'{self.address}' is no PCI address", "write it as lspci -D does: 0000:03:00.1"
            )

    @property
    def address_parts(self) -> dict[str, str]:
        """Domain, bus, slot and function, as libvirt writes an address."""
        found = _PCI_ADDRESS.fullmatch(self.address)
        assert found is not None
        return {name: f"0x{part}" for name, part in zip(_PCI_PARTS, found.groups(), strict=True)}

    @property
    def option(self) -> Option:
        """The function, which is on vfio-pci, as QEMU takes it."""
        return Option("device", {"driver": "vfio-pci", "host": self.address})

    def element(self) -> Element:
        # managed: libvirt gives it to vfio-pci, and back to its driver afterwards.
        device = Element("hostdev", mode="subsystem", type="pci", managed="yes")
        SubElement(SubElement(device, "source"), "address", self.address_parts)
        return device


def set_function_address(device: Element, function: HostFunction) -> None:
    """Have a device of a domain be another function of the host's."""
    source = device.find("source/address")
    assert source is not None
    source.attrib.update(function.address_parts)


def function_address(device: Element) -> str:
    """PCI address, on the host, of a function that a domain has."""
    source = device.find("source/address")
    found = {} if source is None else source.attrib
    domain, bus, slot, function = (int(found.get(part, "0"), 16) for part in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


# --- network cards ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Bridge:
    """A virtio card on a bridge of the host's; libvirt makes the tap. System connection only."""

    bridge: str
    mac: str

    def element(self) -> Element:
        return _interface("bridge", self.mac, Element("source", bridge=self.bridge))


@dataclass(frozen=True)
class Tap:
    """A virtio card on a tap that is there already, made by somebody who may."""

    tap: str
    mac: str

    def element(self) -> Element:
        return _interface("ethernet", self.mac, Element("target", dev=self.tap, managed="no"))


@dataclass(frozen=True)
class Wire:
    """A virtio card joined with that of one other machine of this host by Unix sockets.

    Needs no rights; each names its own socket and the other's. Either may start first.
    """

    own: Path
    other: Path
    mac: str

    def options(self, name: str) -> list[Option]:
        wire: Properties = {"type": "dgram", "id": name}
        wire |= {"local.type": "unix", "local.path": str(self.own)}
        wire |= {"remote.type": "unix", "remote.path": str(self.other)}
        return [Option("netdev", wire), virtio_card(name, self.mac)]


@dataclass(frozen=True)
class UdpWire:
    """A virtio card joined with that of one machine of another host by UDP, a frame a datagram.

    Needs no rights. Whoever can send datagrams to the port can send frames.
    """

    own: str
    """IPv4 address of this host, which it listens at."""
    other: str
    """That of the other host."""
    port: int
    """On both hosts."""
    mac: str

    def element(self) -> Element:
        port = str(self.port)
        source = Element("source", address=self.other, port=port)
        SubElement(source, "local", address=self.own, port=port)
        return _interface("udp", self.mac, source)


@dataclass(frozen=True)
class Multicast:
    """A virtio card on a network of any number of machines of this host, by multicast datagrams.

    Needs no rights, but every process of the host may listen and speak there.
    """

    group: str
    port: int
    mac: str

    def element(self) -> Element:
        source = Element("source", address=self.group, port=str(self.port))
        return _interface("mcast", self.mac, source)


Interface = Bridge | Tap | Wire | UdpWire | Multicast
"""A card of a domain."""


@dataclass(frozen=True)
class OpenEnd:
    """What a card is joined with: an open socket, whose other end is another guest's, or a tap."""

    file: int
    """Its descriptor, which QEMU inherits."""
    is_tap: bool = False

    def options(self, name: str) -> list[Option]:
        end: Properties = {"type": "tap" if self.is_tap else "stream", "id": name}
        end |= {"fd": self.file} if self.is_tap else {"addr.type": "fd", "addr.str": self.file}
        return [Option("netdev", end)]


@dataclass(frozen=True)
class OpenWire:
    """A virtio card that is joined with an open end."""

    end: OpenEnd
    mac: str

    def options(self, name: str) -> list[Option]:
        return [*self.end.options(name), virtio_card(name, self.mac)]


@dataclass(frozen=True)
class SriovCard:
    """An emulated card with virtual functions of its own, joined with an open end."""

    end: OpenEnd
    mac: str

    def options(self, name: str) -> list[Option]:
        # A card makes functions only behind a port of its own.
        port: Properties = {"driver": "pcie-root-port", "id": "socket", "chassis": 1}
        card: Properties = {"driver": "igb", "bus": "socket", "netdev": name, "mac": self.mac}
        card["romfile"] = ""
        return [Option("device", port), *self.end.options(name), Option("device", card)]


def virtio_card(name: str, mac: str, mtu: int | None = None) -> Option:
    """A virtio card at QEMU's network back end `name`; `mtu` None: Ethernet's largest packet."""
    card: Properties = {"driver": "virtio-net-pci", "netdev": name, "mac": mac, "romfile": ""}
    if mtu is not None:
        card["host_mtu"] = mtu
    return Option("device", card)


def _interface(kind: str, mac: str, joined: Element) -> Element:
    card = Element("interface", type=kind)
    SubElement(card, "mac", address=mac)
    card.append(joined)
    SubElement(card, "model", type="virtio")
    SubElement(card, "rom", enabled="no")
    return card


# --- consoles, ports, disks ------------------------------------------------------------------


@dataclass(frozen=True)
class Console:
    """The serial line that a guest writes its console to, in a file of the host."""

    file: Path

    @property
    def words(self) -> list[str]:
        """The serial line on QEMU's command line."""
        backend: Properties = {"backend": "file", "id": "console", "path": str(self.file)}
        return [*Option("chardev", backend).words, "-serial", "chardev:console"]

    def elements(self) -> list[Element]:
        """The serial line, and the console that libvirt wants to hear of besides."""
        found = []
        for kind in ("serial", "console"):
            console = Element(kind, type="file")
            SubElement(console, "source", path=str(self.file), append="off")
            target = {"port": "0"} if kind == "serial" else {"type": "serial", "port": "0"}
            SubElement(console, "target", target)
            found.append(console)
        return found


@dataclass(frozen=True)
class Port:
    """A virtio port of a guest, by which a program in the guest talks with the host."""

    name: str
    """What the guest finds it by."""
    end: Path | int
    """The host's end: the path of a socket that QEMU makes, or an open socket."""

    def options(self, number: int) -> list[Option]:
        port = f"port{number}"
        socket: Properties = {"backend": "socket", "id": port}
        if isinstance(self.end, int):
            socket["fd"] = self.end
        else:
            socket |= {"path": str(self.end), "server": True, "wait": False}
        device: Properties = {"driver": "virtserialport", "chardev": port, "name": self.name}
        return [Option("chardev", socket), Option("device", {**device, "nr": number})]

    def element(self) -> Element:
        channel = Element("channel", type="unix")
        SubElement(channel, "source", mode="bind", path=str(self.end))
        SubElement(channel, "target", type="virtio", name=self.name)
        return channel


@dataclass(frozen=True)
class Disk:
    """A disk image that the machine boots from, or has beside its kernel."""

    file: Path
    format: str = "qcow2"

    def element(self) -> Element:
        disk = Element("disk", type="file", device="disk")
        SubElement(disk, "driver", name="qemu", type=self.format)
        SubElement(disk, "source", file=str(self.file))
        SubElement(disk, "target", dev="vda", bus="virtio")
        return disk
