"""The IOMMU, which assigning a device to a guest requires, and VFIO, which assigns the device."""

from collections.abc import Iterator

from vicinal.base.wording import show_count
from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.functions.privileged.system import VFIO
from vicinal.host.sriov_facts import read_physical_functions
from vicinal.host.system import Host

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
    need = "functions cannot be assigned to guests" if cards else "guests cannot have devices"
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
