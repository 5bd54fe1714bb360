"""What libvirt says of OpenNebula's VMs: it knows which run here, whatever became of a driver."""

import os
import re

_DEFAULT = "qemu:///system"


def domain_name(vm: int) -> str:
    """As OpenNebula calls the domain of a VM."""
    return f"one-{vm}"


def libvirt_uri() -> str:
    """What kvmrc tells the stock scripts, too."""
    return os.environ.get("LIBVIRT_URI") or _DEFAULT


def saved_description(checkpoint: str) -> str | None:
    """What libvirt says of the domain in a file that one was saved to; None where it cannot."""
    from vicinal.cluster.vm.libvirt.binding import libvirt

    try:
        connection = libvirt.open(libvirt_uri())  # who only reads is refused this
        try:
            return str(connection.saveImageGetXMLDesc(checkpoint, 0))
        finally:
            connection.close()
    except libvirt.libvirtError:
        return None  # the stock script comes to the same, and says so in its own words


def running_machines() -> set[int]:
    """Ids of the VMs whose domains are there, be they paused. Raises VicinalError."""
    # Loaded here: most actions are for VMs without a region, and do without.
    from vicinal.cluster.vm.libvirt.binding import explained, libvirt

    uri = libvirt_uri()
    with explained(f"libvirt at {uri} does not say which VMs run here"):
        connection = libvirt.openReadOnly(uri)
        try:
            domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            names = [domain.name() for domain in domains]
        finally:
            connection.close()
    found = (re.fullmatch(domain_name(0).replace("0", "([0-9]{1,10})"), name) for name in names)
    return {int(each[1]) for each in found if each}
