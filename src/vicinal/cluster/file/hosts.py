"""The hosts of a cluster, and what one host's share of it has to know of the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vicinal.cluster.vm.guest.identity import KeyTexts

THIS_HOST = "localhost"
"""The host that a command is called on, as a file names it."""


@dataclass(frozen=True)
class ClusterHost:
    """A host as the file has it."""

    name: str
    """What ssh reaches, or THIS_HOST."""
    address: str | None = None
    """IPv4 address by which the other hosts reach it; None: the one that ssh came to."""
    hypervisor: str | None = None
    """URI of the libvirt of its virtual machines, as that host has it."""
    bridge: str | None = None
    """Bridge of the host's by which its nodes reach those of others; None: machines by wires."""


@dataclass(frozen=True)
class ShareMachine:
    """A virtual machine of a cluster, as all its hosts know it."""

    name: str
    host: str
    joined: bool
    """Whether it has a network with the others."""
    card: str | None = None
    """The card, as the file names that of each host, of which it has a function; None: none."""


@dataclass(frozen=True)
class ShareContainer:
    """A container of a cluster, likewise."""

    name: str
    host: str


@dataclass(frozen=True)
class Share:
    """What a host's share of a cluster knows of the rest."""

    host: str
    """Whose share it is."""
    machines: tuple[ShareMachine, ...] = ()
    """All virtual machines of the cluster, in their order."""
    containers: tuple[ShareContainer, ...] = ()
    """All its containers, likewise."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """IPv4 address of each host that has some."""
    port: int = 0
    """First UDP port of the wires between machines of different hosts."""
    fingerprint: str = ""
    """Of the keys that all virtual machines have."""
    bridge: str | None = None
    """Bridge of the host's that its nodes are at, as those of others are at theirs."""
    away: frozenset[str] = frozenset()
    """Names of virtual machines that the file has here, and that were moved to another host."""
    keys: KeyTexts | None = field(default=None, repr=False, compare=False)
    """The keys themselves, where something is to be made."""

    @property
    def may_move(self) -> bool:
        """Whether its virtual machines can move to other hosts that have some, and theirs here."""
        return self.bridge is not None and len(self.addresses) > 1

    def functions_of(self, card: str) -> int:
        """So many of the cluster's machines have a function of the card of that name."""
        return sum(machine.card == card for machine in self.machines)


def share_name(cluster: str, host: str) -> str:
    """The name under which a host keeps its share; no cluster's own name has a dot."""
    return f"{cluster}.{host}"


def is_share(name: str) -> bool:
    """Whether a name is that of a share."""
    return "." in name
