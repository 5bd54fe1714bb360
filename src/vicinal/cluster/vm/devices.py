"""The devices of a virtual machine, each described once: for QEMU, for libvirt, or for both.

`options()` gives the device in QEMU's form: as words of a command line, or as requests to the
monitor of a running QEMU. `element()` gives the device in libvirt's form, as XML. libvirt has no
element for a wire of Unix sockets, or for a region outside of /dev/shm. A domain passes the options
of these devices to QEMU through libvirt's QEMU namespace. Cards with open files belong to guests
whose QEMU Vicinal starts itself.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element, SubElement

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.region_device import RegionDevice

REGION_PORT = 1
"""Index of the PCIe port that a domain reserves for its region, which is attached and detached
while the guest runs.
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_PCI_PARTS = ("domain", "bus", "slot", "function")

# --- QEMU's and libvirt's syntax -------------------------------------------------------------

_KINDS = ("backend", "driver", "qom-type", "type")
"""Properties that come first. QEMU's command line has only their values."""
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
        """The device at a given PCI address, `SLOT.FUNCTION` on the root bus."""
        return Option(self.name, {**self.properties, "multifunction": True, "addr": address})

    @property
    def request(self) -> tuple[str, dict[str, object]]:
        """The request that plugs a device, or its memory, into a running QEMU."""
        return _PLUGGED[self.name], dict(self.properties)


def _property(key: str, value: str | int | bool) -> str:
    if isinstance(value, bool):
        value = "on" if value else "off"
    text = str(value).replace(",", ",,")
    return text if key in _KINDS else f"{key}={text}"


def add_text(parent: Element, tag: str, text: str | int | Path, **attributes: str) -> Element:
    """Add a child element with a text."""
    element = SubElement(parent, tag, attributes)
    element.text = str(text)
    return element


def check_name(what: str, name: str) -> None:
    """Raise VicinalError for a name that libvirt or a file system could misinterpret."""
    if not _NAME.fullmatch(name):
        raise VicinalError(
            f"{what} cannot have the name {name!r}",
            "use letters, digits, dots, hyphens and underscores, at most 63 characters",
        )


# --- the region ------------------------------------------------------------------------------


class _Region:
    """What the device of a region may require of the rest of the VM."""

    kernel_words: ClassVar[tuple[str, ...]] = ()
    """Further words of the kernel's command line."""
    interrupts: ClassVar[bool] = False
    """Whether the device sends interrupts. The guest then has an IOMMU, because without an IOMMU
    its kernel gives no interrupt to a program.
    """

    @property
    def module_bytes(self) -> int:
        """Size of the memory module, which needs a slot of the board; 0: it is no module."""
        return 0


@dataclass(frozen=True)
class SharedRegion(_Region):
    """A region in /dev/shm, given by its name, as the memory of an ivshmem device (<shmem>).

    It can be attached and detached while the VM runs.
    """

    name: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_name("the region", self.name)
        _check_power_of_two(self.name, self.size_bytes)

    @property
    def path(self) -> Path:
        """The path of the region's file on the host."""
        return Path("/dev/shm") / self.name

    def element(self) -> Element:
        device = _shmem(self.name, RegionDevice.IVSHMEM)
        add_text(device, "size", self.size_bytes >> 20, unit="M")
        return _at_region_port(device)


@dataclass(frozen=True)
class DoorbellRegion(_Region):
    """A region as the memory of an ivshmem device with interrupts: ivshmem-doorbell (<shmem>).

    The server (vicinal.cluster.vm.qemu.doorbell) must run when the VM starts, because it
    passes the memory to the VM's QEMU.
    """

    kernel_words: ClassVar[tuple[str, ...]] = ("vicinal.doorbell=1", "intel_iommu=on")
    interrupts: ClassVar[bool] = True

    name: str
    server: Path
    """Path of its socket."""
    vectors: int
    """Number of the VM's interrupt vectors; the server gives each client this number."""

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

    libvirt's <shmem> knows only /dev/shm. So QEMU gets the device through libvirt's QEMU
    namespace, and libvirt cannot detach it.
    """

    path: Path
    size_bytes: int

    def __post_init__(self) -> None:
        _check_power_of_two(str(self.path), self.size_bytes)

    def options(self) -> list[Option]:
        return _memory_device(RegionDevice.IVSHMEM, self.path, self.size_bytes)


@dataclass(frozen=True)
class NvdimmRegion(_Region):
    """A region in a file as a persistent memory module: the guest maps /dev/dax write-back."""

    path: Path
    size_bytes: int

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.size_bytes % (2 << 20):
            raise VicinalError(
                f"a memory module cannot have {self.size_bytes} bytes",
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
    """An IOMMU for a device with interrupts: the guest's vfio-pci accepts no device without one."""

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
    # With the role `peer`, libvirt would refuse to save the domain: see lifecycle.save().
    element = Element("shmem", name=name, role="master")
    SubElement(element, "model", type=device.value)
    return element


def _at_region_port(device: Element) -> Element:
    address = {"domain": "0x0000", "bus": f"0x{REGION_PORT:02x}", "slot": "0x00"}
    SubElement(device, "address", address, type="pci", function="0x0")
    return device


def _check_power_of_two(name: str, size_bytes: int) -> None:
    # The memory of a PCI device has such a size, and libvirt counts it in MiB.
    if size_bytes < 1 << 20 or size_bytes & (size_bytes - 1):
        raise VicinalError(
            f"the region {name} has {size_bytes} bytes, and a PCI device's memory needs a power of"
            " two from 1 MiB on",
            "create it with --for-guests",
        )


# --- functions of the host -------------------------------------------------------------------


@dataclass(frozen=True)
class PciFunction:
    """A PCI function of the host, such as an SR-IOV virtual function, assigned to the VM.

    `address` is in the format of lspci -D: 0000:03:00.1.
    """

    address: str

    def __post_init__(self) -> None:
        if not _PCI_ADDRESS.fullmatch(self.address):
            raise VicinalError(
                f"{self.address!r} is not a PCI address", "write it as lspci -D does: 0000:03:00.1"
            )

    @property
    def address_parts(self) -> dict[str, str]:
        """Domain, bus, slot and function in libvirt's form of an address."""
        found = _PCI_ADDRESS.fullmatch(self.address)
        assert found is not None
        return {name: f"0x{part}" for name, part in zip(_PCI_PARTS, found.groups(), strict=True)}

    @property
    def option(self) -> Option:
        """The function, which vfio-pci drives, as an option of QEMU."""
        return Option("device", {"driver": "vfio-pci", "host": self.address})

    def element(self) -> Element:
        # managed: libvirt binds it to vfio-pci, and afterwards to its former driver.
        device = Element("hostdev", mode="subsystem", type="pci", managed="yes")
        SubElement(SubElement(device, "source"), "address", self.address_parts)
        return device


def set_pci_function_address(device: Element, function: PciFunction) -> None:
    """Replace the host's function behind a device of a domain."""
    source = device.find("source/address")
    assert source is not None
    source.attrib.update(function.address_parts)


def pci_function_address(device: Element) -> str:
    """The PCI address, on the host, of a function in a domain's XML."""
    source = device.find("source/address")
    found = {} if source is None else source.attrib
    domain, bus, slot, function = (int(found.get(part, "0"), 16) for part in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


# --- network cards ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Bridge:
    """A virtio card on a bridge of the host. libvirt creates the tap: system connection only."""

    bridge: str
    mac: str

    def element(self) -> Element:
        return _interface("bridge", self.mac, Element("source", bridge=self.bridge))


@dataclass(frozen=True)
class Tap:
    """A virtio card on an existing tap, which a privileged user created."""

    tap: str
    mac: str

    def element(self) -> Element:
        return _interface("ethernet", self.mac, Element("target", dev=self.tap, managed="no"))


@dataclass(frozen=True)
class Wire:
    """A virtio card joined to a card of one other VM of this host by Unix sockets.

    It needs no privileges. Each VM names its own socket and the other's. Either starts first.
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
    """A virtio card joined by UDP to a card of one VM of another host, one frame a datagram.

    It needs no privileges. Any program that can send datagrams to the port can send frames.
    """

    own: str
    """IPv4 address of this host, at which QEMU receives."""
    other: str
    """IPv4 address of the other host."""
    port: int
    """UDP port, the same on both hosts."""
    mac: str

    def element(self) -> Element:
        port = str(self.port)
        source = Element("source", address=self.other, port=port)
        SubElement(source, "local", address=self.own, port=port)
        return _interface("udp", self.mac, source)


@dataclass(frozen=True)
class Multicast:
    """A virtio card on a multicast network of any number of VMs of this host.

    It needs no privileges, but all processes of the host can listen and send there.
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
    """The host's end of a card: an open socket, joined to another guest's, or an open tap."""

    file: int
    """Its file descriptor, which QEMU inherits."""
    is_tap: bool = False

    def options(self, name: str) -> list[Option]:
        end: Properties = {"type": "tap" if self.is_tap else "stream", "id": name}
        end |= {"fd": self.file} if self.is_tap else {"addr.type": "fd", "addr.str": self.file}
        return [Option("netdev", end)]


@dataclass(frozen=True)
class OpenWire:
    """A virtio card joined to an open end."""

    end: OpenEnd
    mac: str

    def options(self, name: str) -> list[Option]:
        return [*self.end.options(name), virtio_card(name, self.mac)]


@dataclass(frozen=True)
class SriovCard:
    """An emulated card with SR-IOV virtual functions, joined to an open end."""

    end: OpenEnd
    mac: str

    def options(self, name: str) -> list[Option]:
        # The card can create functions only behind a PCIe port.
        port: Properties = {"driver": "pcie-root-port", "id": "socket", "chassis": 1}
        card: Properties = {"driver": "igb", "bus": "socket", "netdev": name, "mac": self.mac}
        card["romfile"] = ""
        return [Option("device", port), *self.end.options(name), Option("device", card)]


def virtio_card(name: str, mac: str, mtu: int | None = None) -> Option:
    """A virtio card at QEMU's network back end `name`; `mtu` None: Ethernet's default."""
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
    """The serial line to which a guest writes its console, stored in a file of the host."""

    file: Path

    @property
    def words(self) -> list[str]:
        """The serial line on QEMU's command line."""
        backend: Properties = {"backend": "file", "id": "console", "path": str(self.file)}
        return [*Option("chardev", backend).words, "-serial", "chardev:console"]

    def elements(self) -> list[Element]:
        """The serial line, and the console element that libvirt requires for it."""
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
    """A virtio port of a guest, by which a program in the guest talks to the host."""

    name: str
    """The name by which the guest finds the port."""
    end: Path | int
    """The host's end: the path of a socket that QEMU creates, or an open socket."""

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
    """A disk image that the VM boots from, or has in addition to its kernel."""

    file: Path
    format: str = "qcow2"

    def element(self) -> Element:
        disk = Element("disk", type="file", device="disk")
        SubElement(disk, "driver", name="qemu", type=self.format)
        SubElement(disk, "source", file=str(self.file))
        SubElement(disk, "target", dev="vda", bus="virtio")
        return disk
