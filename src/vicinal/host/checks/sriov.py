"""Cards with SR-IOV: the number of their functions, the limit, and the users of the functions."""

from collections import Counter
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.pci import MELLANOX
from vicinal.host.sriov_facts import PhysicalFunction, Use, VirtualFunction, read_physical_functions
from vicinal.host.system import Host

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
        "functions": [_function_facts(each) for each in card.functions],
    }
    name = _name(card)
    if card.limit is None or card.limit == 0:
        why = "shows no SR-IOV" if card.limit is None else "allows 0 functions (sriov_totalvfs)"
        return failed(f"{name}: the firmware {why}", _firmware_remedy(card), **facts)
    if device.driver is None:
        return failed(
            f"{name}: no driver is bound to the card, so it can create no functions",
            f"bind its driver: `echo {device.address} > /sys/bus/pci/drivers_probe`",
            **facts,
        )
    if card.created == 0:
        if not card.by_sysfs:
            return warned(
                f"{name}: 0 of {card.limit} functions created; {device.driver} creates functions "
                "when the driver is loaded, and ignores sriov_numvfs",
                f"write `options {device.driver} num_vfs=NUMBER probe_vf=0` into "
                f"/etc/modprobe.d/{device.driver}.conf, and reboot",
                **facts,
            )
        return passed(f"{name}: no functions yet, and up to {card.limit} can be created", **facts)
    if len(card.functions) != card.created:
        return failed(
            f"{name}: {card.created} functions are enabled, but {len(card.functions)} exist",
            f"create the functions again: `vicinal functions remove {device.address}`, then "
            "create; `dmesg` shows what failed",
            **facts,
        )
    return passed(
        f"{name}: {card.created} of {card.limit} functions created: {_uses(card.functions)}",
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


def _uses(functions: tuple[VirtualFunction, ...]) -> str:
    counts = Counter(each.use for each in functions)
    parts = []
    for use, count in counts.items():
        who = sorted({holder for each in functions if each.use is use for holder in each.holders})
        parts.append(f"{count} {_USES[use]}" + (f" ({', '.join(who)})" if who else ""))
    return ", ".join(parts)


def _function_facts(function: VirtualFunction) -> dict[str, object]:
    device = function.device
    return {
        "number": function.number,
        "address": device.address,
        "driver": device.driver,
        "iommu_group": device.iommu_group,
        "interfaces": list(device.interfaces),
        "rdma_devices": list(device.rdma_devices),
        "use": function.use.value,
        "holders": list(function.holders),
    }


def _links(host: Host, card: PhysicalFunction) -> Iterator[Finding]:
    """Report the link of each of a card's interfaces, which the links of its functions follow."""
    for name in card.device.interfaces:
        place = card.device.place / "net" / name
        state = host.text(place / "operstate") or "unknown"
        carrier = host.number(place / "carrier")  # unreadable while the interface is down
        speed = host.number(place / "speed")
        shown = f", {speed} Mb/s" if speed is not None and speed > 0 else ""
        facts = {"interface": name, "state": state, "carrier": carrier == 1, "speed": speed}
        if state == "up" or (state == "unknown" and carrier == 1):
            yield passed(f"{name}: the link is up{shown}", **facts)
        elif carrier is None:
            yield warned(
                f"{name}: the interface is down, and so are the links of its functions",
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
    shared = [each for each in card.functions if each.group_shared_with]
    if shared:
        first = shared[0]
        yield failed(
            f"{_name(card)}: {len(shared)} of its functions share an IOMMU group with other "
            f"devices ({first.device.address} with {', '.join(first.group_shared_with[:3])}), and "
            "cannot be assigned separately",
            "put the card into a slot whose port has ACS, and turn ACS on in the firmware's set-up",
            functions=[each.device.address for each in shared],
        )
    without = [each for each in card.functions if each.device.iommu_group is None]
    if without:
        yield failed(
            f"{_name(card)}: {len(without)} of its functions are in no IOMMU group, and cannot "
            "be assigned to guests",
            "see the line about the IOMMU",
            functions=[each.device.address for each in without],
        )


SRIOV = Check(
    "sriov",
    "SR-IOV",
    "Cards with SR-IOV: the firmware's limit, their functions, the functions' users, links",
    check_sriov,
)
