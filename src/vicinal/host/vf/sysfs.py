"""Virtual functions from sysfs: their drivers, and who uses them.

    for card in physical_functions(Host()):
        print(card.address, [vf.address for vf in card.vfs])

Reading needs no rights. Some facts are visible only to root, or only in the right network
namespace. Invisible facts are left out, never guessed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.vf.privileged.system import Host, read_settings

ETHERNET, INFINIBAND = "ethernet", "infiniband"
_NETWORK_CLASS, _INFINIBAND_CLASS = "0x02", "0x0207"


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device, in the kernel's latest state."""

    device: str
    number: int
    link_layer: str
    """InfiniBand or Ethernet."""
    state: str
    """DOWN, INIT, ARMED or ACTIVE."""
    physical_state: str
    """LinkUp, Polling, Disabled and so on."""
    subnet_manager: int
    """LID of the subnet manager; 0 if there is none."""
    guid: str
    """The port's GUID as eight bytes; empty if it cannot be read."""
    node_guid: str


@dataclass(frozen=True)
class VirtualFunction:
    """A virtual function of a card."""

    address: str
    physical: str
    """PCI address of the physical function."""
    number: int
    """Number of the VF on its physical function, from 0; `ip link` calls this number vf."""
    driver: str
    """Name of the driver; empty if no driver is bound."""
    group: str
    """Number of the IOMMU group; empty if there is none, because the IOMMU is off."""
    group_others: tuple[str, ...]
    """Other devices in the IOMMU group, which must be bound to vfio-pci together with the
    VF."""
    interfaces: tuple[str, ...]
    ports: tuple[Port, ...]
    use: str
    """Why the VF is in use; empty if the VF is unused."""
    programs: tuple[str, ...]
    """Processes that have the VF open by vfio-pci, `name (pid)`, if this user may see
    them."""
    owner: str
    """The owner, such as a cluster; empty if the VF is not assigned."""
    settings: Mapping[str, str]
    """The VF's settings according to its card, if they can be read."""

    @property
    def free(self) -> bool:
        """Whether the VF can be assigned."""
        return not self.owner and not self.use


@dataclass(frozen=True)
class PhysicalFunction:
    """A network card, or a port of a card, that supports virtual functions."""

    address: str
    kind: str
    """ETHERNET or INFINIBAND."""
    driver: str
    interfaces: tuple[str, ...]
    ports: tuple[Port, ...]
    numa_node: int
    """-1 if the node is unknown."""
    most: int
    """Greatest number of VFs that the firmware allows."""
    owner: str
    """The owner for whom the VFs were created; empty if Vicinal did not create them."""
    vfs: tuple[VirtualFunction, ...] = field(default=())

    @property
    def names(self) -> set[str]:
        """All names by which a user may name the card."""
        return {self.address, *self.interfaces, *(port.device for port in self.ports)}


def physical_functions(host: Host) -> list[PhysicalFunction]:
    """Return all network cards of this host that support virtual functions, ordered by address."""
    records = read_records(host)
    devices = host.sysfs / "bus/pci/devices"
    found = []
    for device in sorted(devices.iterdir()) if devices.is_dir() else []:
        total = host.read(device / "sriov_totalvfs")
        if total.isdecimal() and host.read(device / "class").startswith(_NETWORK_CLASS):
            found.append(_physical_function(host, device.name, int(total), records))
    return found


def all_vfs(cards: list[PhysicalFunction]) -> Iterator[VirtualFunction]:
    """Yield the virtual functions of all cards."""
    for card in cards:
        yield from card.vfs


def find_card(cards: list[PhysicalFunction], name: str) -> PhysicalFunction:
    """Return the card with this address, interface or RDMA device. Raises VicinalError if there is
    none."""
    for card in cards:
        if name in card.names:
            return card
    known = ", ".join(card.address for card in cards) or "none"
    raise VicinalError(
        f"{name} is no card that can have virtual functions; this host has {known}",
        "see `vicinal vf list`; a card whose firmware has SR-IOV off is not in it",
    )


def find_vf(cards: list[PhysicalFunction], name: str) -> VirtualFunction | None:
    """Return the virtual function with this address or interface; None if there is none."""
    for vf in all_vfs(cards):
        if name == vf.address or name in vf.interfaces:
            return vf
    return None


def read_records(host: Host) -> Mapping[str, Mapping[str, Any]]:
    """Return the privileged helper's records of creators and owners.

    Raises VicinalError if the records are malformed.
    """
    try:
        records = json.loads(host.read(host.records / "records.json") or "{}")
    except ValueError as error:
        raise VicinalError(
            f"the records in {host.records} cannot be read ({error})",
            "if no cluster runs, remove the records as root",
        ) from error
    return {"physical": {}, "vfs": {}, **records}


def read_ports(host: Host, address: str) -> Iterator[Port]:
    """Yield the ports of a device's RDMA devices."""
    for name in host.names(address, "infiniband"):
        device = host.device(address) / "infiniband" / name
        for directory in sorted((device / "ports").glob("[0-9]*")):
            gid = host.read(directory / "gids/0").split(":")
            yield Port(
                device=name,
                number=int(directory.name),
                link_layer=host.read(directory / "link_layer"),
                state=_after_colon(host.read(directory / "state")),
                physical_state=_after_colon(host.read(directory / "phys_state")),
                subnet_manager=int(host.read(directory / "sm_lid") or "0", 0),
                guid=plain_guid("".join(gid[4:])),
                node_guid=plain_guid(host.read(device / "node_guid").replace(":", "")),
            )


def group_others(host: Host, address: str) -> tuple[str, ...]:
    """Return the other devices in a device's IOMMU group, which a guest would get together with
    it."""
    group = host.link(host.device(address) / "iommu_group")
    members = host.sysfs / "kernel/iommu_groups" / group / "devices"
    names = [each.name for each in members.iterdir()] if group and members.is_dir() else []
    return tuple(sorted(name for name in names if name != address))


def holders(host: Host, address: str, processes: Path = Path("/proc")) -> Iterator[str]:
    """Yield processes that have a device open by VFIO, `name (pid)`, if this user may see them."""
    for process in holding(host, address, processes):
        yield f"{host.read(process / 'comm') or 'a process'} ({process.name})"


def holding(host: Host, address: str, processes: Path = Path("/proc")) -> Iterator[Path]:
    """Yield the same processes, each as its directory in /proc.

    A process has the device's group open, or on newer kernels the device's own file.
    """
    device = host.device(address)
    own = device / "vfio-dev"
    names = [f"devices/{each.name}" for each in (own.iterdir() if own.is_dir() else ())]
    if group := host.link(device / "iommu_group"):
        names.append(group)
    nodes = {str(host.groups / name) for name in names}
    for process in processes.glob("[0-9]*") if nodes else ():
        if nodes & set(_opened(process)):
            yield process


def plain_guid(digits: str) -> str:
    """Return sixteen hexadecimal digits as eight bytes with colons; empty for other text."""
    if len(digits) != 16:
        return ""
    return ":".join(digits[start : start + 2] for start in range(0, 16, 2)).lower()


def _physical_function(
    host: Host, address: str, most: int, records: Mapping[str, Mapping[str, Any]]
) -> PhysicalFunction:
    device = host.device(address)
    ports = tuple(read_ports(host, address))
    by_class = host.read(device / "class").startswith(_INFINIBAND_CLASS)
    by_port = any(port.link_layer == "InfiniBand" for port in ports)
    numa_node = host.read(device / "numa_node")
    interfaces = host.names(address, "net")
    vfs = host.vfs(address)
    kind = INFINIBAND if by_class or by_port else ETHERNET
    settings = read_settings(host, address, infiniband=kind == INFINIBAND) if vfs else {}
    return PhysicalFunction(
        address=address,
        kind=kind,
        driver=host.link(device / "driver"),
        interfaces=tuple(interfaces),
        ports=ports,
        numa_node=int(numa_node) if numa_node.lstrip("-").isdecimal() else -1,
        most=most,
        owner=records["physical"].get(address, {}).get("owner", ""),
        vfs=tuple(
            _virtual_function(host, address, number, vf, records, settings.get(number, {}))
            for number, vf in enumerate(vfs)
        ),
    )


def _virtual_function(
    host: Host,
    physical: str,
    number: int,
    address: str,
    records: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, str],
) -> VirtualFunction:
    device = host.device(address)
    group = host.link(device / "iommu_group")
    use = host.use(address)
    return VirtualFunction(
        address=address,
        physical=physical,
        number=number,
        driver=host.link(device / "driver"),
        group=group,
        group_others=group_others(host, address),
        interfaces=tuple(host.names(address, "net")),
        ports=tuple(read_ports(host, address)),
        use=use,
        programs=tuple(holders(host, address)) if use else (),
        owner=records["vfs"].get(address, {}).get("owner", ""),
        settings=settings,
    )


def _opened(process: Path) -> Iterator[str]:
    """The files that a process has open; none if the process is another user's or has just
    ended."""
    with suppress(OSError):
        for each in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(each.readlink())


def _after_colon(text: str) -> str:
    """The name in a text such as `4: ACTIVE`."""
    return text.partition(":")[2].strip()
