"""Checks of devices that guests and containers can have: the IOMMU, SR-IOV and InfiniBand."""

import re
from collections import Counter
from collections.abc import Iterator

from vicinal.base.wording import show_count
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
from vicinal.host.pci import MELLANOX
from vicinal.host.sriov_facts import PhysicalFunction, Use, VirtualFunction, read_physical_functions
from vicinal.host.system import Host
from vicinal.host.vf.privileged.system import VFIO

# The IOMMU, which assigning a device to a guest requires, and VFIO, which assigns the device.

_GROUPS = "sys/kernel/iommu_groups"
_TABLES = "sys/firmware/acpi/tables"
_UNITS = "sys/class/iommu"


def check_iommu(host: Host) -> Iterator[Finding]:
    """Report IOMMU groups, the kernel's options about them, and the driver vfio-pci."""
    groups = [name for name in host.names(_GROUPS) if name.isdecimal()]
    cards = [each.device for each in read_physical_functions(host)]
    options = {
        name: value for name, value in host.kernel_options.items() if "iommu" in name.lower()
    }
    units = host.names(_UNITS)
    facts = {"groups": len(groups), "units": units, "kernel_options": options}
    if not groups:
        yield _without_groups(host, bool(cards), facts)
        return
    shown = " ".join(f"{name}={value}" if value else name for name, value in options.items())
    said = f"kernel option {shown}" if shown else "the kernel's defaults"
    translated = [
        card.address
        for card in cards
        if (host.text(f"{_GROUPS}/{card.iommu_group}/type") or "").startswith("DMA")
    ]
    if translated:
        yield warned(
            f"{show_count(len(groups), 'group')} by {', '.join(units) or 'the IOMMU'}, {said}; "
            f"transfers of {', '.join(translated)} for the host itself are translated too, which "
            "is slower",
            "add iommu=pt to the kernel's command line, and reboot",
            **facts,
        )
    else:
        yield passed(
            f"{show_count(len(groups), 'group')} by {', '.join(units) or 'the IOMMU'}, {said}",
            **facts,
        )
    yield _vfio(host)


def _without_groups(host: Host, cards: bool, facts: dict[str, object]) -> Finding:
    options = host.kernel_options
    off = next(
        (
            f"{name}={value}"
            for name, value in options.items()
            if name in ("iommu", "intel_iommu", "amd_iommu") and value.split(",")[0] == "off"
        ),
        None,
    )
    tables = host.names(_TABLES)
    judge = failed if cards else warned
    need = "VFs cannot be assigned to guests" if cards else "guests cannot have devices"
    if off is not None:
        return judge(
            f"there are no IOMMU groups, because the kernel was started with {off}: {need}",
            f"remove {off} from the kernel's command line, and reboot",
            **facts,
        )
    if "DMAR" in tables:
        return judge(
            f"the firmware has an IOMMU (VT-d), but the kernel does not use it: {need}",
            "add intel_iommu=on iommu=pt to the kernel's command line, and reboot",
            **facts,
        )
    if "IVRS" in tables:
        return judge(
            f"the firmware has an IOMMU (AMD-Vi), but the kernel does not use it: {need}",
            "read `dmesg | grep AMD-Vi`, and check that the kernel has CONFIG_AMD_IOMMU",
            **facts,
        )
    remedy = (
        "give this virtual machine an IOMMU on its host (QEMU: -device intel-iommu,intremap=on)"
        if host.is_virtual
        else "turn on VT-d or AMD-Vi in the firmware's set-up, if the hardware has it"
    )
    if cards:
        return failed(f"this host shows no IOMMU: {need}", remedy, **facts)
    return skipped(f"this host shows no IOMMU, and no card with SR-IOV: {need}", remedy)


def _vfio(host: Host) -> Finding:
    bound = host.exists(f"sys/bus/pci/drivers/{VFIO}")
    node = host.exists("dev/vfio/vfio") or host.exists("dev/iommu")
    if bound and node:
        return passed("the driver vfio-pci, which assigns devices to guests, is loaded", vfio=True)
    return warned(
        "the driver vfio-pci, which assigns devices to guests, is not loaded",
        "run `modprobe vfio-pci`; to load it at each boot, name it in "
        "/etc/modules-load.d/vfio.conf",
        vfio=False,
    )


IOMMU = Check(
    "iommu",
    "IOMMU",
    "IOMMU groups, the kernel's options about them, and vfio-pci",
    check_iommu,
)


# Cards with SR-IOV: the number of their VFs, the limit, and the users of the VFs.

_USES = {
    Use.FREE: "without a driver",
    Use.RESERVED: "held by vfio-pci for guests",
    Use.GUEST: "in guests",
    Use.HOST: "used by this host",
}


def check_sriov(host: Host) -> Iterator[Finding]:
    """Report each card that supports virtual functions, its links, and its IOMMU groups."""
    none = True
    for card in read_physical_functions(host):
        none = False
        yield _card(card)
        yield from _links(host, card)
        yield from _groups(card)
    if none:
        yield skipped("no card here shows SR-IOV")


def _card(card: PhysicalFunction) -> Finding:
    device = card.device
    facts = {
        "address": device.address,
        "vendor": f"{device.vendor:04x}",
        "device": f"{device.device:04x}",
        "driver": device.driver,
        "interfaces": list(device.interfaces),
        "rdma_devices": list(device.rdma_devices),
        "numa_node": device.numa_node,
        "limit": card.limit,
        "created": card.created,
        "vfs": [_vf_facts(each) for each in card.vfs],
    }
    name = _name(card)
    if card.limit is None or card.limit == 0:
        why = "shows no SR-IOV" if card.limit is None else "allows 0 VFs (sriov_totalvfs)"
        return failed(f"{name}: the firmware {why}", _firmware_remedy(card), **facts)
    if device.driver is None:
        return failed(
            f"{name}: no driver is bound to the card, so it can create no VFs",
            f"bind its driver: `echo {device.address} > /sys/bus/pci/drivers_probe`",
            **facts,
        )
    if card.created == 0:
        if not card.by_sysfs:
            return warned(
                f"{name}: 0 of {card.limit} VFs created; {device.driver} creates VFs "
                "when the driver is loaded, and ignores sriov_numvfs",
                f"write `options {device.driver} num_vfs=NUMBER probe_vf=0` into "
                f"/etc/modprobe.d/{device.driver}.conf, and reboot",
                **facts,
            )
        return passed(f"{name}: no VFs yet, and up to {card.limit} can be created", **facts)
    if len(card.vfs) != card.created:
        return failed(
            f"{name}: {card.created} VFs are enabled, but {len(card.vfs)} exist",
            f"create the VFs again: `vicinal vf remove {device.address}`, then "
            "create; `dmesg` shows what failed",
            **facts,
        )
    return passed(
        f"{name}: {card.created} of {card.limit} VFs created: {_uses(card.vfs)}",
        **facts,
    )


def _name(card: PhysicalFunction) -> str:
    device = card.device
    words = [device.driver or "no driver", *device.rdma_devices, *device.interfaces]
    node = "" if device.numa_node is None else f", node {device.numa_node}"
    return f"{device.address} ({' '.join(words)}{node})"


def _firmware_remedy(card: PhysicalFunction) -> str:
    if card.device.vendor == MELLANOX:
        return (
            f"`mstconfig -d {card.device.address} set SRIOV_EN=1 NUM_OF_VFS=8`, and reboot; SR-IOV "
            "must be on in the host's firmware too"
        )
    return (
        "turn on SR-IOV for the card in the firmware's set-up, or by its maker's tool, and reboot"
    )


def _uses(vfs: tuple[VirtualFunction, ...]) -> str:
    counts = Counter(each.use for each in vfs)
    parts = []
    for use, count in counts.items():
        who = sorted({holder for each in vfs if each.use is use for holder in each.holders})
        parts.append(f"{count} {_USES[use]}" + (f" ({', '.join(who)})" if who else ""))
    return ", ".join(parts)


def _vf_facts(vf: VirtualFunction) -> dict[str, object]:
    device = vf.device
    return {
        "number": vf.number,
        "address": device.address,
        "driver": device.driver,
        "iommu_group": device.iommu_group,
        "interfaces": list(device.interfaces),
        "rdma_devices": list(device.rdma_devices),
        "use": vf.use.value,
        "holders": list(vf.holders),
    }


def _links(host: Host, card: PhysicalFunction) -> Iterator[Finding]:
    """Report the link of each of a card's interfaces, which the links of its VFs follow."""
    for name in card.device.interfaces:
        directory = card.device.directory / "net" / name
        state = host.text(directory / "operstate") or "unknown"
        carrier = host.number(directory / "carrier")  # unreadable while the interface is down
        speed = host.number(directory / "speed")
        shown = f", {speed} Mb/s" if speed is not None and speed > 0 else ""
        facts = {"interface": name, "state": state, "carrier": carrier == 1, "speed": speed}
        if state == "up" or (state == "unknown" and carrier == 1):
            yield passed(f"{name}: the link is up{shown}", **facts)
        elif carrier is None:
            yield warned(
                f"{name}: the interface is down, and so are the links of its VFs",
                f"run `ip link set {name} up`",
                **facts,
            )
        else:
            yield warned(
                f"{name}: the link is down: the other end does not answer",
                "check cable and switch port; guests on this host still reach each other if "
                "the card's own switch stays up",
                **facts,
            )


def _groups(card: PhysicalFunction) -> Iterator[Finding]:
    shared = [each for each in card.vfs if each.group_shared_with]
    if shared:
        first = shared[0]
        yield failed(
            f"{_name(card)}: {len(shared)} of its VFs share an IOMMU group with other "
            f"devices ({first.device.address} with {', '.join(first.group_shared_with[:3])}), and "
            "cannot be assigned separately",
            "put the card into a slot whose port has ACS, and turn ACS on in the firmware's set-up",
            vfs=[each.device.address for each in shared],
        )
    without = [each for each in card.vfs if each.device.iommu_group is None]
    if without:
        yield failed(
            f"{_name(card)}: {len(without)} of its VFs are in no IOMMU group, and cannot "
            "be assigned to guests",
            "see the line about the IOMMU",
            vfs=[each.device.address for each in without],
        )


SRIOV = Check(
    "sriov",
    "SR-IOV",
    "Cards with SR-IOV: the firmware's limit, their VFs, the VFs' users, links",
    check_sriov,
)


# RDMA ports: their state, their GUIDs, and whether a subnet manager has configured them.


def check_infiniband(host: Host) -> Iterator[Finding]:
    """Report each port, and each VF whose GUIDs were never set."""
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
        yield from _vf_guids(host, device)
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
            "let the VF follow its card's link: `ip link set dev CARD vf N state auto`"
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
            "on the host that assigned this VF, set its node and port GUID, and bind its "
            "driver again"
        )
    mlx4 = own.driver is not None and own.driver.startswith("mlx4")
    guids = "--port-guid GUID" if mlx4 else "--node-guid GUID --port-guid GUID"
    return (
        f"`vicinal vf assign {own.address} --owner NAME {guids}`, which binds the driver "
        "again and waits for the port"
    )


def _vf_guids(host: Host, device: RdmaDevice) -> Iterator[Finding]:
    """Report VFs without GUIDs according to their card; the drivers mlx5 and mlx4 show
    these."""
    if device.pci is None:
        return
    directory = device.pci.directory / "sriov"
    unset = [
        number
        for number in host.names(directory)
        if number.isdecimal()
        and {
            _bare(host.text(directory / number / "node")),
            _bare(host.text(directory / number / "port")),
        }
        & {"0" * 16}
    ]
    if unset:
        yield warned(
            f"{device.name}: no GUIDs are set for VFs {', '.join(unset)}",
            "`vicinal vf assign` sets GUIDs when it assigns a VF",
            device=device.name,
            vfs=[int(number) for number in unset],
        )
    for port in host.names(f"sys/class/infiniband/{device.name}/iov/ports"):
        guids = f"sys/class/infiniband/{device.name}/iov/ports/{port}/admin_guids"
        made = range(1, (host.number(device.pci.directory / "sriov_numvfs") or 0) + 1)
        deleted = [n for n in made if _bare(host.text(f"{guids}/{n}")) == "f" * 16]
        if deleted:
            yield warned(
                f"{device.name} port {port}: GUIDs are deleted for VFs "
                f"{', '.join(map(str, deleted))}",
                f"write 0 to /sys/class/infiniband/{device.name}/iov/ports/{port}/admin_guids/N: "
                "the subnet manager then assigns a GUID; or write a GUID of your own",
                device=device.name,
                vfs=deleted,
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
