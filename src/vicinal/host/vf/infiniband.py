"""InfiniBand VFs: GUIDs for VFs without any, and why a port is not ACTIVE.

A new VF of an mlx5 card has GUIDs of zero, and a policy that keeps its port down. A new
VF of an mlx4 card waits until the subnet manager grants its GUID. Neither reports an error.
"""

import time
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.vf.privileged.system import Host
from vicinal.host.vf.sysfs import Port, plain_guid, read_ports

ZERO = ":".join(["00"] * 8)
_ACTIVE, _LINK_UP = "ACTIVE", "LinkUp"
_FULL_MEMBER = 0x8000
_POLL_SECONDS = 0.1


def with_defaults(
    host: Host, physical: str, number: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings, and what the VF needs for an active port: GUIDs and a policy.

    The user's settings and the card's existing values stay.
    """
    own = host.device(physical) / "sriov" / str(number)
    base = next((port.node_guid for port in read_ports(host, physical)), "")
    if not base or _is_mlx4(host, physical):
        return settings  # on mlx4 the subnet manager chooses
    now = {"node_guid": host.read(own / "node"), "port_guid": host.read(own / "port")}
    if not own.is_dir():
        # The kernel's driver shows GUIDs only if the VF is bound to it.
        for port in read_ports(host, host.vfs(physical)[number]):
            now = {"node_guid": port.node_guid, "port_guid": port.guid}
    zero = {
        name: derived_guid(base, 2 * number + index)
        for index, (name, guid) in enumerate(now.items())
        if guid == ZERO
    }
    down = {"policy": "auto"} if host.read(own / "policy") == "Down" else {}
    return {**zero, **down, **settings}


def own_guids(host: Host, physical: str, number: int) -> dict[str, Any]:
    """Return GUIDs for a VF whose former GUIDs cannot be restored; otherwise an empty dict.

    The kernel's mlx5 driver does not show a VF's former GUIDs.
    """
    base = next((port.node_guid for port in read_ports(host, physical)), "")
    shown = (host.device(physical) / "sriov" / str(number)).is_dir()
    if not base or shown or _is_mlx4(host, physical):
        return {}
    names = ("node_guid", "port_guid")
    return {name: derived_guid(base, 2 * number + index) for index, name in enumerate(names)}


def _is_mlx4(host: Host, physical: str) -> bool:
    devices = (host.device(physical) / "infiniband").glob("*/iov")
    return next(devices, None) is not None


def derived_guid(base: str, number: int) -> str:
    """Return a GUID for a VF from its card's unique GUID; unique for `number` below 4096."""
    digits = base.replace(":", "")
    return plain_guid(f"{digits[:6]}f{number:03x}{digits[10:]}")


def pkey_index(host: Host, physical: str, port: int, pkey: int) -> int:
    """Return the index of a partition key in the table of an mlx4 card's port.

    Raises VicinalError if the key is not in the table, or if the card has no table.
    """
    for name in host.names(physical, "infiniband"):
        table = host.device(physical) / "infiniband" / name / "iov/ports" / str(port) / "pkeys"
        if table.is_dir():
            entries = {int(each.name): host.read(each) for each in table.iterdir()}
            for index, text in sorted(entries.items()):
                if int(text or "0", 0) | _FULL_MEMBER == pkey | _FULL_MEMBER:
                    return index
            raise VicinalError(
                f"{name} is in no partition 0x{pkey:04x}",
                "have the subnet manager add it (opensm: partitions.conf), or name another",
            )
    raise VicinalError(
        f"the driver of {physical} leaves partitions to the subnet manager",
        "add the VF's port GUID to the partition there (opensm: partitions.conf)",
    )


def wait_active(
    host: Host, physical: str, vf: str, number: int, seconds: float, deadline: float
) -> None:
    """Wait until a port of a VF is ACTIVE.

    Raises VicinalError with the cause at `deadline`; `seconds` is the whole wait, for the message.
    """
    while not any(port.state == _ACTIVE for port in read_ports(host, vf)):
        if time.monotonic() > deadline:
            cause, remedy = cause_of_no_port(host, physical, vf, number)
            raise VicinalError(
                f"the port of {vf} did not become ACTIVE within {seconds:g} s: {cause}",
                remedy,
            )
        time.sleep(_POLL_SECONDS)


def wait_card_active(host: Host, physical: str, seconds: float) -> None:
    """Wait until a port of a card is ACTIVE; before that, no port of its VFs can be ACTIVE.

    Raises VicinalError with the cause after `seconds`. If no RDMA driver shows the card's ports,
    there is no wait.
    """
    deadline = time.monotonic() + seconds
    while ports := list(read_ports(host, physical)):
        if any(port.state == _ACTIVE for port in ports):
            return
        if time.monotonic() > deadline:
            cause, remedy = _cause_on_wire(ports[0], ports[0])
            raise VicinalError(
                f"no port of {physical} became ACTIVE within {seconds:g} s: {cause}", remedy
            )
        time.sleep(_POLL_SECONDS)


def cause_of_no_port(host: Host, physical: str, vf: str, number: int) -> tuple[str, str]:
    """Return why no port of a VF is ACTIVE, and a remedy; the most likely cause first."""
    driver = host.link(host.device(vf) / "driver")
    ports = list(read_ports(host, vf))
    if not driver:
        return (
            "no driver is bound to the VF",
            "load the card's driver, and assign the VF again",
        )
    if not ports:
        return (
            f"its driver {driver} made no RDMA device of it",
            "load mlx5_ib or mlx4_ib, and see what `dmesg` says of the VF",
        )
    card = [port for port in read_ports(host, physical) if port.number == ports[0].number]
    own = host.device(physical) / "sriov" / str(number)
    if any(each in (ZERO, "") for each in (ports[0].node_guid, ports[0].guid)):
        return _no_guid(host, physical, vf, number)
    if host.read(own / "policy") == "Down":
        return "its policy is Down", "assign it with --policy auto"
    return _cause_on_wire(ports[0], card[0] if card else None)


def _no_guid(host: Host, physical: str, vf: str, number: int) -> tuple[str, str]:
    own = host.device(physical) / "sriov" / str(number)
    set_ones = [host.read(own / name) for name in ("node", "port")]
    if all(each not in ("", ZERO) for each in set_ones):
        return (
            "its GUID is zero, though one was set: its driver read it before",
            f"release {vf} and assign it again, which binds its driver anew",
        )
    if not _is_mlx4(host, physical):
        return "its GUID is zero", "assign it with --node-guid and --port-guid"
    return (
        "its GUID is zero: the subnet manager has granted none",
        "see that a subnet manager runs, and that no other port has the GUID that was asked for",
    )


def _cause_on_wire(port: Port, card: Port | None) -> tuple[str, str]:
    if card is not None and card.physical_state not in (_LINK_UP, ""):
        return (
            f"the card's own port {card.device}/{card.number} has no link ({card.physical_state})",
            "see to the cable, and whether the other end is switched on",
        )
    if card is not None and card.state != _ACTIVE and not card.subnet_manager:
        return (
            f"there is no subnet manager: the card's own port {card.device}/{card.number} is"
            f" {card.state} and heard of none",
            "start one in the subnet, such as opensm",
        )
    if card is not None and card.state != _ACTIVE:
        return (
            f"the card's own port {card.device}/{card.number} is {card.state}",
            "see what the subnet manager's log says of it",
        )
    return (
        f"it is {port.state}, though the card's own port is ACTIVE: the subnet manager does not"
        " serve virtual functions",
        "use one that does, with virtualization on (opensm: virt_enabled 2)",
    )
