"""Checks of what virtual machines need: QEMU, libvirt, the ivshmem device, and kernel lockdown."""

import errno
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from vicinal.base.sizes import show_short_size
from vicinal.host.finding import Check, Finding, Status, failed, passed, skipped, warned
from vicinal.host.libvirt_daemons import (
    DAEMONS,
    OWN_DAEMON,
    complaint_of,
    own_socket,
    system_sockets,
)
from vicinal.host.shared_device import (
    SLOW,
    IvshmemDevice,
    Mapping,
    SharedDevice,
    map_memory,
    read_dax_devices,
    read_ivshmem_devices,
)
from vicinal.host.system import Host
from vicinal.region.geometry import MAGIC, VERSION
from vicinal.region.records import HEADER

# QEMU: whether it is installed, and has the devices that a virtual cluster needs.

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


# libvirt: its daemons, their sockets, and its Python binding.

_START = (
    "start the daemon: `systemctl start virtqemud.socket` (or libvirtd.socket), or "
    "`libvirtd --daemon`"
)


def check_libvirt(host: Host) -> Iterator[Finding]:
    """Report the installed daemon, then the system's daemon, then the needs of a user's session."""
    daemon = host.program(*DAEMONS)
    binding = _binding_version()
    if daemon is None:
        yield skipped(
            "libvirt's daemon is not installed: virtual clusters of guests need it",
            "on Debian run `apt-get install libvirt-daemon-system libvirt-clients`",
            daemon=None,
            python_binding=binding,
        )
        return
    found = re.search(r"\d+(?:\.\d+)+", host.ask(daemon, "--version") or "")
    version = found[0] if found else "of unknown version"
    yield passed(f"{daemon.name} {version} is installed", daemon=str(daemon), version=version)
    system = _system(host)
    yield system
    if host.user == 0 and system.status is not Status.PASS:
        yield _own(host)
    yield passed(
        f"qemu:///session: {daemon.name} starts for this user on the first connection (not tried)"
    )
    if binding is None:
        yield warned(
            "libvirt's binding is not installed for this Python",
            "install libvirt-python beside vicinal, or run `make` again",
            python_binding=None,
        )
    else:
        yield passed(f"Python's binding {binding}", python_binding=binding)


def _system(host: Host) -> Finding:
    path = next(system_sockets(host), None)
    if path is None:
        return warned("qemu:///system: the daemon does not run (no socket)", _START)
    socket = f"/{path.relative_to(host.root)}"
    if not os.access(path, os.R_OK | os.W_OK):
        return warned(
            f"qemu:///system: this user may not use {socket}",
            "run `usermod --append --groups libvirt USER` and log in again, or use qemu:///session",
            socket=socket,
        )
    complaint = complaint_of(path)
    if complaint is not None:
        judged = warned if host.user == 0 else failed  # root's clusters have a daemon of their own
        return judged(
            f"qemu:///system: no daemon answers at {socket} ({complaint})", _START, socket=socket
        )
    return passed(f"qemu:///system: the daemon answers at {socket}", socket=socket)


def _own(host: Host) -> Finding:
    """The daemon that root's clusters use if the system's daemon does not answer."""
    if host.program(OWN_DAEMON) is None:
        return warned(
            f"Vicinal's own libvirt: its daemon {OWN_DAEMON} is not installed",
            "on Debian run `apt-get install libvirt-daemon`",
        )
    path = own_socket()
    if complaint_of(path) is None:
        return passed(f"Vicinal's own libvirt: the daemon answers at {path}", socket=str(path))
    return passed(
        "Vicinal's own libvirt: `vicinal up` starts the daemon for clusters that name no libvirt"
    )


def _binding_version() -> str | None:
    try:
        return metadata.version("libvirt-python")
    except metadata.PackageNotFoundError:
        return None


LIBVIRT = Check(
    "libvirt",
    "libvirt",
    "libvirt's daemon, its sockets for the system and a session, and Python's binding",
    check_libvirt,
)


# Whether this host is a guest with a region: ivshmem devices, and /dev/dax.

_UDEV = (
    "assign it to the users' group by the udev rule in docs/tutorials/own-vms.md, "
    "and join that group"
)
_AS_MODULE = "give the guest the region as an nvdimm"


def check_ivshmem(host: Host) -> Iterator[Finding]:
    """Report each ivshmem device and each /dev/dax."""
    devices = list(read_ivshmem_devices(host))
    for device in devices:
        facts = {"address": device.pci.address, "doorbell": device.doorbell}
        yield _device(host, device, facts)
    modules = list(read_dax_devices(host))
    for module in modules:
        yield _device(host, module, {"device": module.memory.name})
    if not devices and not modules:
        yield skipped("no ivshmem device (1af4:1110): this is not a guest with a region")


def _device(host: Host, device: SharedDevice, facts: dict[str, object]) -> Finding:
    name = f"{device.name}, {show_short_size(device.memory_bytes)}"
    facts["memory_bytes"] = device.memory_bytes
    bar = isinstance(device, IvshmemDevice)
    if device.memory_bytes == 0:
        remedy = "check QEMU's option -device: memdev=" if bar else "check `ndctl list`"
        return failed(f"{name}: the device has no memory", remedy, **facts)
    try:
        mapping = map_memory(host, device)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        if error.errno == errno.EACCES:
            # A memory module may have another purpose, which does not concern this user.
            judge = failed if bar else warned
            return judge(f"{name}: this user may not open /{device.memory}", _UDEV, **facts)
        if error.errno == errno.EPERM and bar:
            return failed(
                f"{name}: the kernel lets no process map the memory (lockdown)",
                f"start the guest without Secure Boot, or {_AS_MODULE}",
                **facts,
            )
        return failed(f"{name}: the memory cannot be mapped: {why}", "read `dmesg`", **facts)
    return _mapped(name, mapping, facts, bar=bar)


def _mapped(name: str, mapping: Mapping, facts: dict[str, object], *, bar: bool) -> Finding:
    attribute = mapping.attribute or "only root can read the attribute"
    facts |= {"times_slower": round(mapping.slower, 2), "attribute": mapping.attribute}
    if mapping.slower >= SLOW:
        remedy = "use a host whose KVM maps the memory write-back"
        return failed(
            f"{name}: reads take {mapping.slower:.0f} times as long as reads of private memory: "
            f"the memory is mapped uncached or write-combining ({attribute})",
            f"{_AS_MODULE}, or {remedy}" if bar else remedy,
            **facts,
        )
    facts["region"] = False
    read = f"mapped ({attribute}), reads take {mapping.slower:.1f} times those of private memory"
    if len(mapping.header) < HEADER.size:
        return failed(
            f"{name}: too short for a region", "make the memory larger on the host: size=", **facts
        )
    fields = HEADER.read(mapping.header[: HEADER.size])[0]
    if fields["magic"] != MAGIC:
        return warned(
            f"{name}: {read}; it holds no region",
            "on the host, run `vicinal region create --existing FILE` with QEMU's memdev file"
            + ("" if bar else ", unless the module has another purpose"),
            **facts,
        )
    if (version := int(fields["version"])) != VERSION:
        return failed(
            f"{name}: its region has format {version}, and this Vicinal needs {VERSION}",
            "use the same version of Vicinal on the host and in its guests",
            **facts,
        )
    facts["region"] = True
    facts["members"] = members = int(fields["members"])
    return passed(f"{name}, a region for {members} members; {read}", **facts)


IVSHMEM = Check(
    "ivshmem",
    "ivshmem",
    "In a guest: ivshmem devices and /dev/dax, the region in them, how their memory is mapped",
    check_ivshmem,
)


# Kernel lockdown, which keeps a guest from mapping the memory of an ivshmem device.

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
