"""The life of a domain: defined, started, observed, saved, stopped, removed.

Every function names its domain, does nothing where nothing is to be done, and touches no domain
that is not Vicinal's.
"""

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest.console import console_lines, console_tail
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
    """What a domain does."""

    ABSENT = "absent"
    OFF = "off"
    SAVED = "saved"
    """Off, and its memory in a file of libvirt's: restore() lets it go on."""
    RUNNING = "running"
    PAUSED = "paused"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Domain:
    """A domain of a cluster, as it was found."""

    name: str
    cluster: str
    node: str
    state: DomainState


def define(hypervisor: Hypervisor, spec: DomainSpec) -> None:
    """Make the domain known to libvirt, or change it; one that runs changes at its next start.

    libvirt checks the definition by its schema. Raises VicinalError if the name belongs to
    somebody else.
    """
    there = lookup(hypervisor, spec.name)
    if there is not None:
        _check_ours(there, (spec.cluster, spec.node))
    with explained(f"the domain {spec.name} cannot be defined"):
        xml = domain_xml(spec)
        if there is not None:
            # What has the same identifier replaces; else the name would be taken.
            xml = xml.replace("<name>", f"<uuid>{there.UUIDString()}</uuid><name>", 1)
        hypervisor.connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)


def start(hypervisor: Hypervisor, name: str) -> None:
    """Let a defined domain run, from the beginning; its guest boots while this returns.

    Raises VicinalError for one that was saved, since what it had would be lost.
    """
    domain = ours(hypervisor, name)
    if _state(domain) is DomainState.SAVED:
        raise VicinalError(f"the domain {name} is saved", "restore it, or remove it first")
    with explained(f"the domain {name} does not start"):
        if not domain.isActive():
            domain.create()


def observe(hypervisor: Hypervisor, name: str) -> DomainState:
    """What the domain does now."""
    domain = lookup(hypervisor, name)
    return DomainState.ABSENT if domain is None else _state(domain)


def find(hypervisor: Hypervisor, cluster: str | None = None) -> list[Domain]:
    """All domains of a cluster, or of all clusters, running or not, in the order of their names."""
    found = []
    with explained("libvirt does not list its domains"):
        domains = hypervisor.connection.listAllDomains()
    for domain in domains:
        try:
            whose = identity(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
            if whose is not None and cluster in (None, whose[0]):
                found.append(Domain(domain.name(), *whose, _state(domain)))
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # went away meanwhile
                raise VicinalError(
                    f"the domain {domain.name()} cannot be looked at ({error})",
                    "see what virsh dumpxml says of it",
                ) from error
    return sorted(found, key=lambda domain: domain.name)


def stop(hypervisor: Hypervisor, name: str, *, patience: float = 0.0) -> bool:
    """End a domain: by its power button, and at once where that did not help in `patience` seconds.

    Returns whether the guest went by itself. The definition stays.
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
    """End a domain and forget it, with what was saved of it; nothing where there is none."""
    if lookup(hypervisor, name) is None:
        return
    stop(hypervisor, name)
    domain = lookup(hypervisor, name)
    if domain is not None:
        with explained(f"the domain {name} cannot be removed"):
            domain.undefineFlags(_UNDEFINE)


def save(hypervisor: Hypervisor, name: str, *, with_region: bool = False) -> None:
    """Stop a domain with its memory kept by libvirt; only what restore() does lets it go on.

    A region is nobody's memory alone: restoring a domain brings back what was in it, which would
    break the jobs of others. So this raises where the domain has one, unless the caller says by
    `with_region` that all who have it stand still, and come back before any of them goes on. Close
    the connections to the guest first too, for it would not see that they ended.
    """
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be saved"):
        if not domain.isActive():
            return
        check_may_be_saved(hypervisor, name)
        if has_device_region(domain.XMLDesc()) and not with_region:
            raise VicinalError(
                f"the domain {name} cannot be saved with a region that others use",
                "detach the region first",
            )
        domain.managedSave()


def check_may_be_saved(hypervisor: Hypervisor, name: str) -> None:
    """Raise VicinalError for a domain that cannot be saved because of what it has."""
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot be looked at"):
        check_region_may_leave(domain.XMLDesc(), f"{name} cannot be saved")


def check_region_may_leave(xml: str, what: str) -> None:
    """Raise VicinalError if a domain has a region by a device that stays in it.

    A memory module is taken for the machine's own memory: where the machine goes on, QEMU would
    write over the other machines' messages. A doorbell's number is what others ring it by: where
    the machine goes on, a server would give it another, and its guest does not let go of it.
    """
    devices = ElementTree.fromstring(xml)
    remedy = "stop it instead, or give it the region as ivshmem-plain"
    if devices.find("devices/memory[@model='nvdimm']") is not None:
        raise VicinalError(
            f"the domain {what}: its region is a memory module, which other machines write to",
            remedy,
        )
    if devices.find("devices/shmem/server") is not None:
        raise VicinalError(
            f"the domain {what}: its region can interrupt, and the others know it by a number "
            "that is not the same again",
            remedy,
        )


def restore(hypervisor: Hypervisor, name: str, *, paused: bool = False) -> None:
    """Let a saved domain go on where it was; `paused`: it stands still there until resume()."""
    domain = ours(hypervisor, name)
    if _state(domain) is DomainState.RUNNING:
        return
    with explained(f"the domain {name} cannot be restored"):
        if not domain.hasManagedSaveImage():
            raise VicinalError(f"nothing was saved of the domain {name}", "start it instead")
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)


def suspend(hypervisor: Hypervisor, name: str) -> None:
    """Let a running domain stand still; nothing where it does already."""
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot stand still"):
        if _state(domain) is DomainState.RUNNING:
            domain.suspend()


def resume(hypervisor: Hypervisor, name: str) -> None:
    """Let a paused domain go on; nothing where it is not paused."""
    domain = ours(hypervisor, name)
    with explained(f"the domain {name} cannot go on"):
        if _state(domain) is DomainState.PAUSED:
            domain.resume()


def wait_until_booted(
    hypervisor: Hypervisor, name: str, console: Path, seconds: float, ready: str = READY_LINE
) -> None:
    """Wait until a guest says on its console, a file of this host, that it is ready.

    Raises VicinalError with the console's last lines if it ends or takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not any(ready in line for line in console_lines(console)):
        state = observe(hypervisor, name)
        late = time.monotonic() > deadline
        if late or state not in (DomainState.RUNNING, DomainState.PAUSED):
            why = f"within {seconds:g} s" if late else f"and is {state}"
            tail = " | ".join(console_tail(console)) or "nothing"
            raise VicinalError(
                f"the domain {name} did not come up {why}; its console ends with: {tail}",
                f"see all of it in {console}",
            )
        time.sleep(_POLL_SECONDS)


def lookup(hypervisor: Hypervisor, name: str) -> "libvirt.virDomain | None":
    """libvirt's domain of that name, whoever made it."""
    try:
        return hypervisor.connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise VicinalError(
            f"libvirt does not say whether there is a domain {name} ({error})",
            "see whether its daemon still runs",
        ) from error


def whose(hypervisor: Hypervisor, name: str) -> tuple[str, str] | None:
    """Cluster and node that a domain says it is; None where there is none, or it does not say."""
    domain = lookup(hypervisor, name)
    if domain is None:
        return None
    with explained(f"the domain {name} cannot be looked at"):
        return identity(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


def ours(hypervisor: Hypervisor, name: str) -> "libvirt.virDomain":
    """The domain of that name. Raises VicinalError if there is none, or if it is not Vicinal's.

    One that the connection was lent counts as ours.
    """
    domain = lookup(hypervisor, name)
    if domain is None:
        raise VicinalError(f"there is no domain {name} at {hypervisor.uri}", "define it first")
    if name not in hypervisor.lent:
        _check_ours(domain, None)
    return domain


def _check_ours(domain: "libvirt.virDomain", whose: tuple[str, str] | None) -> None:
    with explained(f"the domain {domain.name()} cannot be looked at"):
        found = identity(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    if found is None:
        raise VicinalError(
            f"the domain {domain.name()} is not one of Vicinal's", "choose another name"
        )
    if whose is not None and found != whose:
        raise VicinalError(
            f"the domain {domain.name()} is the node {found[1]} of the cluster {found[0]}",
            "choose another name, or remove that one",
        )


def _state(domain: "libvirt.virDomain") -> DomainState:
    try:
        state = int(domain.state()[0])  # its annotation is wrong
        saved = state == libvirt.VIR_DOMAIN_SHUTOFF and domain.hasManagedSaveImage()
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return DomainState.ABSENT
        raise VicinalError(
            f"libvirt does not say what the domain {domain.name()} does ({error})",
            "see whether its daemon still runs",
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
