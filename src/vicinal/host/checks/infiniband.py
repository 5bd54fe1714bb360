"""RDMA ports: their state, their GUIDs, and whether a subnet manager has configured them."""

import re
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.infiniband_facts import (
    ACTIVE,
    ARMED,
    DISABLED,
    INITIALIZED,
    NO_GUID,
    Port,
    RdmaDevice,
    read_rdma_devices,
)
from vicinal.host.system import Host


def check_infiniband(host: Host) -> Iterator[Finding]:
    """Report each port, and each function whose GUIDs were never set."""
    none = True
    for device in read_rdma_devices(host):
        none = False
        if not device.ports:
            yield warned(
                f"{device.name}: the device shows no ports",
                f"read its driver's messages: `dmesg | grep {device.name}`",
                device=device.name,
            )
        for port in device.ports:
            yield _port(device, port)
        yield from _function_guids(host, device)
    if none:
        yield skipped("there is no RDMA device, InfiniBand or other")


def _port(device: RdmaDevice, port: Port) -> Finding:
    name = f"{device.name} port {port.number}"
    kind = "InfiniBand" if port.is_infiniband else "Ethernet (RoCE)"
    facts = {
        "device": device.name,
        "port": port.number,
        "link_layer": "InfiniBand" if port.is_infiniband else "Ethernet",
        "state": port.state_name,
        "guid": port.guid,
        "node_guid": device.node_guid,
        "lid": port.lid,
        "subnet_manager_lid": port.subnet_manager,
        "rate": port.rate,
        "firmware": device.firmware,
    }
    missing = [
        what
        for what, guid in (("port", port.guid), ("node", device.node_guid))
        if port.is_infiniband and guid == NO_GUID
    ]
    if missing:
        return failed(
            f"{name}: its {' and '.join(missing)} GUID {'are' if len(missing) > 1 else 'is'} zero, "
            f"and the port is {port.state_name}: no subnet manager accepts it",
            _guid_remedy(device),
            **facts,
        )
    if port.state >= ACTIVE:
        manager = f", subnet manager at LID {port.subnet_manager}" if port.is_infiniband else ""
        if port.is_infiniband and port.subnet_manager == 0:
            return warned(
                f"{name}: {kind}, ACTIVE, but the port has no subnet manager",
                "check that a subnet manager runs on this subnet: `sminfo`",
                **facts,
            )
        return passed(f"{name}: {kind}, ACTIVE, {port.rate}{manager}", **facts)
    return _inactive(device, port, name, kind, facts)


def _inactive(
    device: RdmaDevice, port: Port, name: str, kind: str, facts: dict[str, object]
) -> Finding:
    if port.state in (INITIALIZED, ARMED) and port.is_infiniband:
        known = port.subnet_manager != 0
        return failed(
            f"{name}: {kind}, {port.state_name}: the link is up, but "
            + (
                "the subnet manager has not activated the port"
                if known
                else "no subnet manager has configured the port"
            ),
            f"read the log of the subnet manager, LID {port.subnet_manager}; a subnet manager "
            "that ignores virtual ports needs its option for virtualization"
            if known
            else "start a subnet manager on this subnet: `opensm`, or the switch's own",
            **facts,
        )
    if port.link == DISABLED:
        virtual = device.pci is not None and device.pci.physical_function is not None
        return failed(
            f"{name}: {kind}, {port.state_name}: the port is disabled",
            "let the function follow its card's link: `ip link set dev CARD vf N state auto`"
            if virtual
            else f"`ibportstate -C {device.name} -P {port.number} enable`",
            **facts,
        )
    return warned(
        f"{name}: {kind}, {port.state_name}: the other end does not answer",
        "check cable and switch port"
        if port.is_infiniband
        else "check cable and switch port, and that the network interface is up",
        **facts,
    )


def _guid_remedy(device: RdmaDevice) -> str:
    own = device.pci
    if own is None or own.physical_function is None:
        return (
            "on the host that assigned this function, set its node and port GUID, and bind its "
            "driver again"
        )
    mlx4 = own.driver is not None and own.driver.startswith("mlx4")
    guids = "--port-guid GUID" if mlx4 else "--node-guid GUID --port-guid GUID"
    return (
        f"`vicinal functions assign {own.address} --owner NAME {guids}`, which binds the driver "
        "again and waits for the port"
    )


def _function_guids(host: Host, device: RdmaDevice) -> Iterator[Finding]:
    """Report functions without GUIDs according to their card; the drivers mlx5 and mlx4 show
    these."""
    if device.pci is None:
        return
    place = device.pci.place / "sriov"
    unset = [
        number
        for number in host.names(place)
        if number.isdecimal()
        and {_bare(host.text(place / number / "node")), _bare(host.text(place / number / "port"))}
        & {"0" * 16}
    ]
    if unset:
        yield warned(
            f"{device.name}: no GUIDs are set for functions {', '.join(unset)}",
            "`vicinal functions assign` sets GUIDs when it assigns a function",
            device=device.name,
            functions=[int(number) for number in unset],
        )
    for port in host.names(f"sys/class/infiniband/{device.name}/iov/ports"):
        guids = f"sys/class/infiniband/{device.name}/iov/ports/{port}/admin_guids"
        made = range(1, (host.number(device.pci.place / "sriov_numvfs") or 0) + 1)
        deleted = [n for n in made if _bare(host.text(f"{guids}/{n}")) == "f" * 16]
        if deleted:
            yield warned(
                f"{device.name} port {port}: GUIDs are deleted for functions "
                f"{', '.join(map(str, deleted))}",
                f"write 0 to /sys/class/infiniband/{device.name}/iov/ports/{port}/admin_guids/N: "
                "the subnet manager then assigns a GUID; or write a GUID of your own",
                device=device.name,
                functions=deleted,
            )


def _bare(guid: str | None) -> str:
    """The sixteen digits of a GUID in any notation (0x..., colons, plain); empty for other text."""
    text = (guid or "").lower().removeprefix("0x").replace(":", "")
    return text.zfill(16) if text and re.fullmatch(r"[0-9a-f]{1,16}", text) else ""


INFINIBAND = Check(
    "infiniband",
    "InfiniBand",
    "RDMA ports: state, GUIDs, and the subnet manager",
    check_infiniband,
)
