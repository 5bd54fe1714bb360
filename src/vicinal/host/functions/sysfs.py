"""What virtual functions there are, read from sysfs: how each is bound, and who has it.

    for card in physical_functions(Host()):
        print(card.address, [function.address for function in card.functions])

Reading needs no rights. Some things only show with them, or from the right network namespace;
what does not show is left out, never guessed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.functions.privileged.system import Host, read_settings

ETHERNET, INFINIBAND = "ethernet", "infiniband"
_NETWORK_CLASS, _INFINIBAND_CLASS = "0x02", "0x0207"


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device, as the kernel last heard of it."""

    device: str
    number: int
    link_layer: str
    """InfiniBand or Ethernet."""
    state: str
    """DOWN, INIT, ARMED or ACTIVE."""
    physical_state: str
    """LinkUp, Polling, Disabled and so on."""
    subnet_manager: int
    """LID of the subnet manager; 0: none was heard of."""
    guid: str
    """Of the port, as eight bytes; empty where it cannot be read."""
    node_guid: str


@dataclass(frozen=True)
class VirtualFunction:
    """A virtual function."""

    address: str
    physical: str
    """PCI address of the physical function that it belongs to."""
    number: int
    """Which one of those it is, from 0; `ip link` calls this its vf."""
    driver: str
    """Empty: none has it."""
    group: str
    """Number of its IOMMU group; empty: there is none, since the IOMMU is off."""
    group_others: tuple[str, ...]
    """What else is in that group, and would have to go to vfio-pci with it."""
    interfaces: tuple[str, ...]
    ports: tuple[Port, ...]
    use: str
    """Why it must not be taken from who has it; empty: it may be."""
    programs: tuple[str, ...]
    """What has it open through vfio-pci, `name (pid)`, as far as this user may see."""
    owner: str
    """What it is assigned to, such as a cluster; empty: nothing."""
    settings: Mapping[str, str]
    """What its card says is set of it, as far as that can be read."""

    @property
    def free(self) -> bool:
        """Whether it can be assigned."""
        return not self.owner and not self.use


@dataclass(frozen=True)
class PhysicalFunction:
    """A network card, or a port of one, that can have virtual functions."""

    address: str
    kind: str
    """ETHERNET or INFINIBAND."""
    driver: str
    interfaces: tuple[str, ...]
    ports: tuple[Port, ...]
    numa_node: int
    """-1: the machine does not say."""
    most: int
    """How many functions the firmware allows."""
    owner: str
    """For what they were made; empty: not by us."""
    functions: tuple[VirtualFunction, ...] = field(default=())

    @property
    def names(self) -> set[str]:
        """Everything that a user may call it."""
        return {self.address, *self.interfaces, *(port.device for port in self.ports)}


def physical_functions(host: Host) -> list[PhysicalFunction]:
    """All network cards of this host that can have virtual functions, by their addresses."""
    records = read_records(host)
    devices = host.sysfs / "bus/pci/devices"
    found = []
    for device in sorted(devices.iterdir()) if devices.is_dir() else []:
        total = host.read(device / "sriov_totalvfs")
        if total.isdecimal() and host.read(device / "class").startswith(_NETWORK_CLASS):
            found.append(_physical_function(host, device.name, int(total), records))
    return found


def all_functions(cards: list[PhysicalFunction]) -> Iterator[VirtualFunction]:
    """The virtual functions of all cards."""
    for card in cards:
        yield from card.functions


def find_card(cards: list[PhysicalFunction], name: str) -> PhysicalFunction:
    """The card that a user names by its address, an interface or an RDMA device."""
    for card in cards:
        if name in card.names:
            return card
    known = ", ".join(card.address for card in cards) or "none"
    raise VicinalError(
        f"{name} is no card that can have virtual functions; this host has {known}",
        "see `vicinal functions list`; a card whose firmware has SR-IOV off is not in it",
    )


def find_function(cards: list[PhysicalFunction], name: str) -> VirtualFunction | None:
    """The virtual function that a user names by its address or interface."""
    for function in all_functions(cards):
        if name == function.address or name in function.interfaces:
            return function
    return None


def read_records(host: Host) -> Mapping[str, Mapping[str, Any]]:
    """Who made and who has what, as the privileged helper wrote it down."""
    try:
        records = json.loads(host.read(host.records / "records.json") or "{}")
    except ValueError as error:
        raise VicinalError(
            f"the records in {host.records} cannot be read ({error})",
            "look at them, and if no cluster runs remove them as root",
        ) from error
    return {"physical": {}, "functions": {}, **records}


def read_ports(host: Host, address: str) -> Iterator[Port]:
    """Ports of a device's RDMA devices."""
    for name in host.names(address, "infiniband"):
        device = host.device(address) / "infiniband" / name
        for place in sorted((device / "ports").glob("[0-9]*")):
            gid = host.read(place / "gids/0").split(":")
            yield Port(
                device=name,
                number=int(place.name),
                link_layer=host.read(place / "link_layer"),
                state=_after_colon(host.read(place / "state")),
                physical_state=_after_colon(host.read(place / "phys_state")),
                subnet_manager=int(host.read(place / "sm_lid") or "0", 0),
                guid=plain_guid("".join(gid[4:])),
                node_guid=plain_guid(host.read(device / "node_guid").replace(":", "")),
            )


def group_others(host: Host, address: str) -> tuple[str, ...]:
    """What is in a device's IOMMU group beside it, and would have to go to a guest with it."""
    group = host.link(host.device(address) / "iommu_group")
    members = host.sysfs / "kernel/iommu_groups" / group / "devices"
    names = [each.name for each in members.iterdir()] if group and members.is_dir() else []
    return tuple(sorted(name for name in names if name != address))


def holders(host: Host, address: str, processes: Path = Path("/proc")) -> Iterator[str]:
    """Processes that have a device open through VFIO, `name (pid)`, as far as this user may see."""
    for process in holding(host, address, processes):
        yield f"{host.read(process / 'comm') or 'a process'} ({process.name})"


def holding(host: Host, address: str, processes: Path = Path("/proc")) -> Iterator[Path]:
    """The same, each as its directory.

    They have its group open, or its own file of newer kernels.
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
    """Sixteen hexadecimal digits as eight bytes with colons; empty for anything else."""
    if len(digits) != 16:
        return ""
    return ":".join(digits[place : place + 2] for place in range(0, 16, 2)).lower()


def _physical_function(
    host: Host, address: str, most: int, records: Mapping[str, Mapping[str, Any]]
) -> PhysicalFunction:
    device = host.device(address)
    ports = tuple(read_ports(host, address))
    by_class = host.read(device / "class").startswith(_INFINIBAND_CLASS)
    by_port = any(port.link_layer == "InfiniBand" for port in ports)
    numa_node = host.read(device / "numa_node")
    interfaces = host.names(address, "net")
    functions = host.functions(address)
    kind = INFINIBAND if by_class or by_port else ETHERNET
    settings = read_settings(host, address, infiniband=kind == INFINIBAND) if functions else {}
    return PhysicalFunction(
        address=address,
        kind=kind,
        driver=host.link(device / "driver"),
        interfaces=tuple(interfaces),
        ports=ports,
        numa_node=int(numa_node) if numa_node.lstrip("-").isdecimal() else -1,
        most=most,
        owner=records["physical"].get(address, {}).get("owner", ""),
        functions=tuple(
            _virtual_function(host, address, number, function, records, settings.get(number, {}))
            for number, function in enumerate(functions)
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
        owner=records["functions"].get(address, {}).get("owner", ""),
        settings=settings,
    )


def _opened(process: Path) -> Iterator[str]:
    """What a process has open; nothing of one that is another user's, or has just ended."""
    with suppress(OSError):
        for each in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(each.readlink())


def _after_colon(text: str) -> str:
    """`4: ACTIVE` without the number."""
    return text.partition(":")[2].strip()
