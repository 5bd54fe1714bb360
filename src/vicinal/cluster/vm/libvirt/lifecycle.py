"""The states of a domain: defining, starting, observing, saving, stopping and removing it.

Each function names its domain, does nothing if there is nothing to do, and changes only domains of
Vicinal.
"""

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest.console import console_lines, guest_error
from vicinal.cluster.vm.image.layout import READY_LINE
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml, has_device_region, identity

_POLL_SECONDS = 0.1
_KILL_SECONDS = 60.0

_UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
)


class DomainState(StrEnum):
    """The state of a domain."""

    ABSENT = "absent"
    OFF = "off"
    SAVED = "saved"
    """Off, with its memory in a file of libvirt, from which restore() continues it."""
    RUNNING = "running"
    PAUSED = "paused"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Domain:
    """A domain of a cluster with its present state."""

    name: str
    cluster: str
    node: str
    state: DomainState


def define(hypervisor: Hypervisor, spec: DomainSpec) -> None:
    """Define the domain in libvirt, or redefine it; a running domain changes at its next start.

    libvirt checks the definition by its schema. Raises VicinalError if another owner has the name.
    """
    there = lookup(hypervisor, spec.name)
    if there is not None:
        _check_ours(there, (spec.cluster, spec.node))
    with explained(f"the domain {spec.name} cannot be defined"):
        xml = domain_xml(spec)
        if there is not None:
            # libvirt replaces a definition with the same UUID. Otherwise it says the name is taken.
            xml = xml.replace("<name>", f"<uuid>{there.UUIDString()}</uuid><name>", 1)
        hypervisor.connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)


def start(hypervisor: Hypervisor, name: str) -> None:
    """Start a defined domain, and return while its guest boots.

    Raises VicinalError for a saved domain, because its saved memory would be lost.
    """
    domain = ours(hypervisor, name)
    if _state(domain) is DomainState.SAVED:
        raise VicinalError(f"the domain {name} is saved", "restore it, or remove it first")
    with explained(f"the domain {name} does not start"):
        if not domain.isActive():
            domain.create()


def observe(hypervisor: Hypervisor, name: str) -> DomainState:
    """The domain's present state."""
    domain = lookup(hypervisor, name)
    return DomainState.ABSENT if domain is None else _state(domain)


def find(hypervisor: Hypervisor, cluster: str | None = None) -> list[Domain]:
    """All domains of a cluster, or of all clusters, in any state, sorted by name."""
    found = []
    with explained("libvirt does not list its domains"):
        domains = hypervisor.connection.listAllDomains()
    for domain in domains:
        try:
            whose = identity(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
            if whose is not None and cluster in (None, whose[0]):
                found.append(Domain(domain.name(), *whose, _state(domain)))
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # it was removed meanwhile
                raise VicinalError(
                    f"the domain {domain.name()} cannot be read ({error})",
                    "see the output of virsh dumpxml",
                ) from error
    return sorted(found, key=lambda domain: domain.name)


def stop(hypervisor: Hypervisor, name: str, *, patience: float = 0.0) -> bool:
    """End a domain: by its power button, and by force if it still runs after `patience` seconds.

    Returns whether the guest shut down by itself. The definition stays.
    """
    domain = ours(hypervisor, name)
    if patience > 0 and _state(domain) is DomainState.RUNNING:
        with explained(f"the power button of {name} cannot be pressed"):
            domain.shutdown()
        if _wait_off(domain, patience):
            return True
    try:
        domain.destroy()
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID:
            return True  # it is off
        raise VicinalError(f"the domain {name} does not end ({error})", "end its QEMU") from error
    if not _wait_off(domain, _KILL_SECONDS):
        raise VicinalError(f"the domain {name} is still there", "end its QEMU")
    return False


def remove(hypervisor: Hypervisor, name: str) -> None:
    """End a domain and remove its definition and saved memory; does nothing if there is none."""
    if lookup(hypervisor, name) is None:
        return
    stop(hypervisor, name)
    domain = lookup(hypervisor, name)
    if domain is not None:
        with explained(f"the domain {name} cannot be removed"):
            domain.undefineFlags(_UNDEFINE)


def save(hypervisor: Hypervisor, name: str, *, with_region: bool = False) -> None:
    """End a domain and let libvirt keep its memory, from which only restore() continues it.

    A region is shared memory: restoring a domain restores the region's former contents, which would
    break jobs of other domains. So this raises VicinalError if the domain has a region. With
    `with_region` the caller states that all domains with this region are paused, and are restored
    before any of them resumes. End the connections to the guest first, because a saved guest does
    not notice their end.
    """
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be saved"):
        if not domain.isActive():
            return
        check_may_be_saved(hypervisor, name)
        if has_device_region(domain.XMLDesc()) and not with_region:
            raise VicinalError(
                f"the domain {name} cannot be saved, because it shares a region with others",
                "detach the region first",
            )
        domain.managedSave()


def check_may_be_saved(hypervisor: Hypervisor, name: str) -> None:
    """Raise VicinalError if one of the domain's devices prevents saving it."""
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be read"):
        check_region_may_leave(domain.XMLDesc(), f"{name} cannot be saved")


def check_region_may_leave(xml: str, what: str) -> None:
    """Raise VicinalError if a domain has a region by a device that cannot be detached.

    QEMU treats a memory module as the VM's own memory, and would overwrite other VMs'
    messages when the VM continues. With a doorbell, other VMs know the device by a
    number. The server would give it another number, and the guest does not release the device.
    """
    devices = ElementTree.fromstring(xml)
    remedy = "stop it instead, or set region.device to ivshmem-plain"
    if devices.find("devices/memory[@model='nvdimm']") is not None:
        raise VicinalError(
            f"the domain {what}: its region is a memory module to which other VMs write",
            remedy,
        )
    if devices.find("devices/shmem/server") is not None:
        raise VicinalError(
            f"the domain {what}: its region has a doorbell, which other VMs know by a number "
            "that would change",
            remedy,
        )


def restore(hypervisor: Hypervisor, name: str, *, paused: bool = False) -> None:
    """Continue a saved domain; with `paused` it stays paused until resume()."""
    domain = ours(hypervisor, name)
    if _state(domain) is DomainState.RUNNING:
        return
    with explained(f"the domain {name} cannot be restored"):
        if not domain.hasManagedSaveImage():
            raise VicinalError(f"the domain {name} has no saved memory", "start it instead")
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)


def suspend(hypervisor: Hypervisor, name: str) -> None:
    """Pause a running domain; does nothing if it does not run."""
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be paused"):
        if _state(domain) is DomainState.RUNNING:
            domain.suspend()


def resume(hypervisor: Hypervisor, name: str) -> None:
    """Resume a paused domain; does nothing if it is not paused."""
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be resumed"):
        if _state(domain) is DomainState.PAUSED:
            domain.resume()


def wait_until_booted(
    hypervisor: Hypervisor, name: str, console: Path, seconds: float, ready: str = READY_LINE
) -> None:
    """Wait until a guest prints on its console, a file of this host, that it is ready.

    Raises VicinalError, with the console's last lines, if it ends or takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not any(ready in line for line in console_lines(console)):
        state = observe(hypervisor, name)
        late = time.monotonic() > deadline
        if late or state not in (DomainState.RUNNING, DomainState.PAUSED):
            why = f"within {seconds:g} s" if late else f"and is {state}"
            raise guest_error(f"the domain {name} did not boot {why}", console)
        time.sleep(_POLL_SECONDS)


def lookup(hypervisor: Hypervisor, name: str) -> "libvirt.virDomain | None":
    """libvirt's domain with this name, of any owner; None if there is none."""
    try:
        return hypervisor.connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise VicinalError(
            f"libvirt does not report whether a domain {name} exists ({error})",
            "check whether its daemon still runs",
        ) from error


def whose(hypervisor: Hypervisor, name: str) -> tuple[str, str] | None:
    """Cluster and node in a domain's metadata; None if there is no domain, or no metadata."""
    domain = lookup(hypervisor, name)
    if domain is None:
        return None
    with explained(f"the domain {name} cannot be read"):
        return identity(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


def ours(hypervisor: Hypervisor, name: str) -> "libvirt.virDomain":
    """The domain with this name. Raises VicinalError if there is none, or it is not Vicinal's.

    Domains in Hypervisor.lent count as Vicinal's.
    """
    domain = lookup(hypervisor, name)
    if domain is None:
        raise VicinalError(f"there is no domain {name} at {hypervisor.uri}", "define it first")
    if name not in hypervisor.lent:
        _check_ours(domain, None)
    return domain


def _check_ours(domain: "libvirt.virDomain", whose: tuple[str, str] | None) -> None:
    with explained(f"the domain {domain.name()} cannot be read"):
        found = identity(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    if found is None:
        raise VicinalError(f"the domain {domain.name()} is not Vicinal's", "choose another name")
    if whose is not None and found != whose:
        raise VicinalError(
            f"the domain {domain.name()} is the node {found[1]} of the cluster {found[0]}",
            "choose another name, or remove that domain",
        )


def _state(domain: "libvirt.virDomain") -> DomainState:
    try:
        state = int(domain.state()[0])  # its annotation is wrong
        saved = state == libvirt.VIR_DOMAIN_SHUTOFF and domain.hasManagedSaveImage()
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return DomainState.ABSENT
        raise VicinalError(
            f"libvirt does not report the state of the domain {domain.name()} ({error})",
            "check whether its daemon still runs",
        ) from error
    if saved:
        return DomainState.SAVED
    return {
        libvirt.VIR_DOMAIN_SHUTOFF: DomainState.OFF,
        libvirt.VIR_DOMAIN_PAUSED: DomainState.PAUSED,
        libvirt.VIR_DOMAIN_PMSUSPENDED: DomainState.PAUSED,
        libvirt.VIR_DOMAIN_CRASHED: DomainState.CRASHED,
    }.get(state, DomainState.RUNNING)


def _wait_off(domain: "libvirt.virDomain", seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    off = (DomainState.OFF, DomainState.SAVED, DomainState.ABSENT, DomainState.CRASHED)
    while _state(domain) not in off:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
