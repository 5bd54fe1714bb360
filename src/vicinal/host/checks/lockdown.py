"""Kernel lockdown, which keeps a guest from mapping the memory of an ivshmem device."""

from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, failed, passed, skipped
from vicinal.host.shared_device import read_ivshmem_devices
from vicinal.host.system import Host

_LOCKDOWN = "sys/kernel/security/lockdown"
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def check_lockdown(host: Host) -> Iterator[Finding]:
    """Report the kernel's lockdown mode, and whether the mode blocks a device of this guest."""
    text = host.text(_LOCKDOWN)
    if text is None:
        asked = host.kernel_options.get("lockdown")
        if asked is None:
            yield skipped("this kernel shows no lockdown (securityfs)")
        else:
            yield skipped(
                f"securityfs is not mounted; the kernel was started with lockdown={asked}"
            )
        return
    mode = text.partition("[")[2].partition("]")[0] or text
    booted = host.path(_SECURE_BOOT)
    try:
        secure = booted.read_bytes()[4:5] == b"\1"
    except OSError:
        secure = False
    facts = {"mode": mode, "secure_boot": secure}
    shown = f"{mode}{', with Secure Boot' if secure else ''}"
    if mode == "none":
        yield passed("none", **facts)
    elif any(read_ivshmem_devices(host)):
        yield failed(
            f"{shown}: the memory of this guest's ivshmem device cannot be mapped",
            "start the guest without Secure Boot and without lockdown= on its kernel's command "
            "line, or give the guest the region as an nvdimm",
            **facts,
        )
    else:
        yield passed(f"{shown}: it blocks nothing here", **facts)


LOCKDOWN = Check(
    "lockdown",
    "lockdown",
    "Kernel lockdown (Secure Boot), which keeps a guest from mapping an ivshmem device",
    check_lockdown,
)
