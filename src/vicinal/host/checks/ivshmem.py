"""Whether this host is a guest with a region: ivshmem devices, and /dev/dax."""

import errno
from collections.abc import Iterator

from vicinal.base.sizes import show_short_size
from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
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

_UDEV = (
    "assign it to the users' group by the udev rule in docs/tutorials/own-machines.md, "
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
