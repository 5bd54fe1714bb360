"""Whether this is a guest with a region: ivshmem devices, and /dev/dax."""

import errno
import os
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.shared_device import (
    SLOW,
    IvshmemDevice,
    Mapping,
    map_memory,
    read_ivshmem_devices,
)
from vicinal.host.sizes import show_bytes
from vicinal.host.system import Host

_DAX = "sys/bus/dax/devices"
_UDEV = "hand it to the users' group by the udev rule in docs/guests.md, and be in that group"


def check_ivshmem(host: Host) -> Iterator[Finding]:
    """A finding for each ivshmem device and each /dev/dax."""
    devices = list(read_ivshmem_devices(host))
    for device in devices:
        yield _device(host, device)
    dax = host.names(_DAX)
    for name in dax:
        yield _dax(host, name)
    if not devices and not dax:
        yield skipped("no ivshmem device (1af4:1110): this is no guest with a region")


def _device(host: Host, device: IvshmemDevice) -> Finding:
    kind = "ivshmem-doorbell" if device.doorbell else "ivshmem-plain"
    name = f"{device.pci.address}: {kind}, {show_bytes(device.memory_bytes)}"
    facts = {
        "address": device.pci.address,
        "doorbell": device.doorbell,
        "memory_bytes": device.memory_bytes,
    }
    if device.memory_bytes == 0:
        return failed(
            f"{name}: it has no memory", "see the -device option of QEMU: memdev=", **facts
        )
    try:
        mapping = map_memory(host, device)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        if error.errno == errno.EACCES:
            return failed(f"{name}: this user may not open /{device.memory}", _UDEV, **facts)
        if error.errno == errno.EPERM:
            return failed(
                f"{name}: the kernel lets nobody map it (lockdown)",
                "start the guest without Secure Boot, or give it the region as an nvdimm",
                **facts,
            )
        return failed(f"{name}: it cannot be mapped: {why}", "see `dmesg`", **facts)
    return _mapped(name, mapping, facts)


def _mapped(name: str, mapping: Mapping, facts: dict[str, object]) -> Finding:
    # Here, since it takes numpy: other hosts need not wait for it.
    import numpy as np

    from vicinal.region.format import HEADER, MAGIC, VERSION

    attribute = mapping.attribute or "its attribute is for root to see"
    facts |= {"times_slower": round(mapping.slower, 2), "attribute": mapping.attribute}
    if mapping.slower >= SLOW:
        return failed(
            f"{name}: reading it takes {mapping.slower:.0f} times as long as private memory: it is "
            f"mapped uncached or write-combining ({attribute})",
            "give the guest the region as an nvdimm, or use a host whose KVM maps it write-back",
            **facts,
        )
    facts["region"] = False
    read = f"mapped ({attribute}), reads take {mapping.slower:.1f} times those of private memory"
    if len(mapping.header) < HEADER.itemsize:
        return failed(
            f"{name}: too short for a region", "make it larger on the host: size=", **facts
        )
    fields = np.frombuffer(mapping.header, HEADER, count=1)[0]
    if int(fields["magic"]) != MAGIC:
        return warned(
            f"{name}: {read}; there is no region in it",
            "on the host: `vicinal region create --existing FILE`, with the file of QEMU's memdev",
            **facts,
        )
    if int(fields["version"]) != VERSION:
        return failed(
            f"{name}: its region has format {int(fields['version'])}, and this is for {VERSION}",
            "use the same version of Vicinal on the host and in its guests",
            **facts,
        )
    facts["region"] = True
    facts["members"] = int(fields["members"])
    return passed(f"{name}, a region for {fields['members']} members; {read}", **facts)


def _dax(host: Host, name: str) -> Finding:
    size = host.number(f"{_DAX}/{name}/size") or 0
    facts = {"device": name, "memory_bytes": size}
    shown = f"/dev/{name}: {show_bytes(size)}, mapped write-back"
    if not host.may(f"dev/{name}", os.R_OK | os.W_OK):
        return warned(
            f"{shown}, but this user may not open it",
            f"`chgrp mpi /dev/{name} && chmod 0660 /dev/{name}`, by a udev rule to last",
            **facts,
        )
    return passed(f"{shown}, and this user may open it", **facts)


IVSHMEM = Check(
    "ivshmem",
    "ivshmem",
    "In a guest: the ivshmem device, the region in it, and how its memory is mapped",
    check_ivshmem,
)
