"""What a cluster's file says of a node's network, whatever the node is made of."""

from dataclasses import dataclass
from ipaddress import IPv4Interface

from vicinal.host.functions.settings import Settings


@dataclass(frozen=True)
class FunctionNetwork:
    """A virtual function of a card of the host's, for this node alone."""

    card: str
    """PCI address, interface or RDMA device."""
    settings: Settings
    """Addresses that are not named are chosen when the card is looked at."""
    address: IPv4Interface | None
    """What its interface is to have; only where we set it up."""


@dataclass(frozen=True)
class DeviceNetwork:
    """A whole PCI device of the host's, for this node alone."""

    device: str
    """PCI address: 0000:03:00.0."""
    address: IPv4Interface | None


@dataclass(frozen=True)
class BridgeNetwork:
    """An interface at a bridge of the host's, which somebody else made and looks after."""

    bridge: str
    mac: str | None
    """Hardware address; None: one is chosen that no other node has."""
    address: IPv4Interface | None


@dataclass(frozen=True)
class TapNetwork:
    """A tap of the host's for a virtual machine's card; likewise somebody else's."""

    tap: str
    mac: str | None
    address: IPv4Interface | None


@dataclass(frozen=True)
class NoNetwork:
    """None at all: the region is all that a node shares with others."""


Network = FunctionNetwork | DeviceNetwork | BridgeNetwork | TapNetwork | NoNetwork
"""Those but the last a node has beside what its back end gives by itself."""


def address_of(network: Network | None) -> IPv4Interface | None:
    """The address that a file gives a node beside its back end's."""
    return None if network is None or isinstance(network, NoNetwork) else network.address
