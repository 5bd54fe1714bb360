"""The network of a node in the cluster file, for all kinds of nodes."""

from dataclasses import dataclass
from ipaddress import IPv4Interface

from vicinal.host.vf.settings import Settings


@dataclass(frozen=True)
class VfNetwork:
    """A virtual function of a card of the host, only for this node."""

    card: str
    """PCI address, interface or RDMA device."""
    settings: Settings
    """Addresses that the file does not set are chosen when the card is read."""
    address: IPv4Interface | None
    """Address of the VF's interface; only if Vicinal sets the interface up."""


@dataclass(frozen=True)
class DeviceNetwork:
    """A whole PCI device of the host, only for this node."""

    device: str
    """PCI address, such as 0000:03:00.0."""
    address: IPv4Interface | None


@dataclass(frozen=True)
class BridgeNetwork:
    """An interface at a bridge of the host, which the host's administrator manages."""

    bridge: str
    mac: str | None
    """Hardware address; None: an address that no other node has."""
    address: IPv4Interface | None


@dataclass(frozen=True)
class TapNetwork:
    """A tap of the host for a VM's card, which the host's administrator manages."""

    tap: str
    mac: str | None
    address: IPv4Interface | None


@dataclass(frozen=True)
class NoNetwork:
    """No network: nodes share only the region."""


Network = VfNetwork | DeviceNetwork | BridgeNetwork | TapNetwork | NoNetwork
"""All except NoNetwork are additions to the network that the back end provides by default."""


def address_of(network: Network | None) -> IPv4Interface | None:
    """Return the address that the file sets for a node's additional network; None without one."""
    return None if network is None or isinstance(network, NoNetwork) else network.address
