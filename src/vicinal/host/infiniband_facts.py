"""RDMA devices and their ports, InfiniBand and Ethernet, from sysfs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vicinal.host.pci import PciDevice, read_device
from vicinal.host.system import Host

_DEVICES = "sys/class/infiniband"

ACTIVE = 4
_STATES = {0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", ACTIVE: "ACTIVE", 5: "ACTIVE_DEFER"}
INITIALIZED = 2
ARMED = 3

DISABLED = 3
POLLING = 2

NO_GUID = "0000:0000:0000:0000"


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device."""

    number: int
    is_infiniband: bool
    """False for Ethernet: RoCE, or RDMA in software."""
    state: int
    """A logical state such as ACTIVE; 0 if the state cannot be read."""
    link: int
    """The physical state: POLLING, DISABLED, or 5 for a link that is up; 0 if it cannot be read."""
    guid: str | None
    """The lower half of the port's first GID, such as 0002:c903:00a1:b2c3; NO_GUID if the GUID is
    unset."""
    lid: int
    subnet_manager: int
    """The subnet manager's LID; 0 if there is no subnet manager."""
    rate: str

    @property
    def state_name(self) -> str:
        """The state's name in ibstat's notation."""
        return _STATES.get(self.state, f"state {self.state}")


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device, such as mlx5_0."""

    name: str
    pci: PciDevice | None
    """The PCI function of the device; None for RDMA in software."""
    node_guid: str | None
    firmware: str
    ports: tuple[Port, ...]


def read_rdma_devices(host: Host) -> Iterator[RdmaDevice]:
    """Yield every RDMA device in this network namespace."""
    for name in host.names(_DEVICES):
        directory = f"{_DEVICES}/{name}"
        address = host.link_name(f"{directory}/device")
        yield RdmaDevice(
            name=name,
            pci=read_device(host, address) if address is not None else None,
            node_guid=host.text(f"{directory}/node_guid"),
            firmware=host.text(f"{directory}/fw_ver") or "",
            ports=tuple(_ports(host, f"{directory}/ports")),
        )


def _ports(host: Host, directory: str) -> Iterator[Port]:
    for number in host.names(directory):
        if not number.isdecimal():
            continue
        port = f"{directory}/{number}"
        yield Port(
            number=int(number),
            is_infiniband=host.text(f"{port}/link_layer") != "Ethernet",
            state=_leading_number(host.text(f"{port}/state")),
            link=_leading_number(host.text(f"{port}/phys_state")),
            guid=_guid(host.text(f"{port}/gids/0")),
            lid=host.number(f"{port}/lid") or 0,
            subnet_manager=host.number(f"{port}/sm_lid") or 0,
            rate=host.text(f"{port}/rate") or "",
        )


def _leading_number(text: str | None) -> int:
    """The number at the start of a line such as "4: ACTIVE"; 0 if there is none."""
    match = re.match(r"(\d{1,4})\b", text or "")
    return int(match[1]) if match else 0


def _guid(gid: str | None) -> str | None:
    """The lower half of a GID such as fe80:0000:0000:0000:0002:c903:00a1:b2c3."""
    groups = (gid or "").split(":")
    return ":".join(groups[4:]) if len(groups) == 8 else None
