"""The hosts of a cluster, and a host's part of a cluster over several hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vicinal.cluster.vm.guest.identity import KeyTexts

THIS_HOST = "localhost"
"""The name of the command's host in a cluster file."""


@dataclass(frozen=True)
class ClusterHost:
    """A host in the cluster file."""

    name: str
    """The name for ssh, or THIS_HOST."""
    address: str | None = None
    """IPv4 address by which the other hosts reach this host; None: the address that ssh uses."""
    hypervisor: str | None = None
    """URI of the libvirt of the host's VMs, as the host itself reaches it."""
    bridge: str | None = None
    """Bridge of the host by which its nodes reach nodes of other hosts.

    None: UDP wires connect the VMs of different hosts.
    """


@dataclass(frozen=True)
class HostPartVm:
    """A VM of a cluster; the same facts on all hosts of the cluster."""

    name: str
    host: str
    joined: bool
    """Whether the VM is in a network with the other VMs."""
    card: str | None = None
    """Name in the file of the card of the VM's virtual function; None: the VM has no VF."""


@dataclass(frozen=True)
class HostPartContainer:
    """A container of a cluster; the same facts on all hosts of the cluster."""

    name: str
    host: str


@dataclass(frozen=True)
class HostPart:
    """The facts of the whole cluster that a host needs to create its part."""

    host: str
    """Name of the host."""
    vms: tuple[HostPartVm, ...] = ()
    """All VMs of the cluster, in the file's order."""
    containers: tuple[HostPartContainer, ...] = ()
    """All containers of the cluster, in the file's order."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """IPv4 address of each host with VMs, by the host's name."""
    port: int = 0
    """First UDP port of the wires between VMs of different hosts."""
    fingerprint: str = ""
    """Fingerprint of the keys that all VMs share."""
    bridge: str | None = None
    """The bridge of this host to which its nodes are connected; None without bridges."""
    away: frozenset[str] = frozenset()
    """Names of VMs that the file places on this host, and that were moved to another host."""
    keys: KeyTexts | None = field(default=None, repr=False, compare=False)
    """The keys; None in requests that create nothing."""

    @property
    def may_move(self) -> bool:
        """Whether VMs can move between this host and other hosts of the cluster."""
        return self.bridge is not None and len(self.addresses) > 1

    def vfs_of(self, card: str) -> int:
        """Return the number of the cluster's VMs with a virtual function of this card."""
        return sum(vm.card == card for vm in self.vms)


def host_part_name(cluster: str, host: str) -> str:
    """Return the name under which a host stores its part: CLUSTER.HOST.

    A cluster's own name has no dot.
    """
    return f"{cluster}.{host}"


def is_host_part(name: str) -> bool:
    """Whether a name is the name of a host's part."""
    return "." in name
