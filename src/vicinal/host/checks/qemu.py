"""QEMU: whether it is installed, and has the devices that a virtual cluster needs."""

import platform
import re
from collections.abc import Iterator
from pathlib import Path

from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.system import Host

_NAMES = (f"qemu-system-{platform.machine()}", "qemu-kvm")
"""Red Hat and related distributions use the second name, and keep QEMU in /usr/libexec."""
_OLDEST = (7, 2)
"""The first version with the network back end `stream`, which connects guests."""

_BUILT_WITH_IT = "use a QEMU with this device, such as Debian's: apt-get install qemu-system"


def check_qemu(host: Host) -> Iterator[Finding]:
    """Report version and accelerators, then the devices for regions, then the SR-IOV card for
    tests."""
    program = qemu_program(host)
    if program is None:
        yield skipped(
            "QEMU is not installed: this host cannot run virtual machines",
            "for virtual machines, on Debian run `apt-get install qemu-system`",
        )
        return
    said = host.try_program(program, "--version")
    found = re.search(r"version (\d+)\.(\d+)(\S*)", said.output)
    if not said.worked or found is None:
        yield failed(
            f"{program} does not run: {said.complaint or 'it reports no version'}",
            "install QEMU again: on Debian run `apt-get install --reinstall qemu-system`",
        )
        return
    version = f"{found[1]}.{found[2]}{found[3]}"
    accelerators = re.findall(r"^(\w+)$", host.ask(program, "-accel", "help") or "", re.M)
    facts = {"path": str(program), "version": version, "accelerators": accelerators}
    if (int(found[1]), int(found[2])) < _OLDEST:
        yield warned(
            f"QEMU {version} is older than {_OLDEST[0]}.{_OLDEST[1]}, which guests need to reach "
            "each other",
            "install a newer QEMU, for instance from the distribution's backports",
            **facts,
        )
    else:
        yield passed(f"QEMU {version}, accelerators {', '.join(accelerators)}", **facts)
    yield from _devices(version, read_device_models(host) or frozenset())


def qemu_program(host: Host) -> Path | None:
    """Return the QEMU for this host's architecture; None if it is not installed."""
    return host.program(*_NAMES)


def read_device_models(host: Host) -> frozenset[str] | None:
    """Return the models that QEMU's -device accepts, such as ivshmem-plain; None if QEMU does not
    run."""
    program = qemu_program(host)
    listed = None if program is None else host.ask(program, "-device", "help")
    return None if listed is None else frozenset(re.findall(r'^name "([^"]+)"', listed, re.M))


def _devices(version: str, devices: frozenset[str]) -> Iterator[Finding]:
    if "ivshmem-plain" in devices:
        yield passed("ivshmem-plain: guests can share a region", ivshmem_plain=True)
    else:
        yield failed(
            "this QEMU has no ivshmem-plain: guests cannot share a region",
            _BUILT_WITH_IT,
            ivshmem_plain=False,
        )
    for name, use in (
        ("ivshmem-doorbell", "ranks in different guests cannot wake each other"),
        ("nvdimm", "guests cannot have a region with a write-back mapping (/dev/dax)"),
    ):
        key = name.replace("-", "_")
        if name in devices:
            yield passed(name, **{key: True})
        else:
            yield warned(f"this QEMU has no {name}: {use}", _BUILT_WITH_IT, **{key: False})
    if "igb" in devices:
        yield passed("igb: an emulated SR-IOV card, for tests", igb=True)
    else:
        yield skipped(
            f"QEMU {version} has no igb, the emulated SR-IOV card, which is for tests only",
            "`vicinal guests run --network verbs` fetches a newer QEMU by itself",
            igb=False,
        )


QEMU = Check(
    "qemu",
    "QEMU",
    "QEMU's version, accelerators, and devices: ivshmem-plain, ivshmem-doorbell, nvdimm, igb",
    check_qemu,
)
