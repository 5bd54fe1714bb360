"""SR-IOV functions of this host's cards that a guest has for itself, by VFIO.

No snapshot has one in it: they are plugged in once the guest is there, as its cards are. The
function is on vfio-pci by then, and its group's file in /dev/vfio is this user's.
"""

from dataclasses import dataclass, replace

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest.identity import Card, Identity
from vicinal.cluster.vm.snapshot.hardware import MOST_DEVICES


@dataclass(frozen=True)
class PassedFunction:
    """A function for a guest."""

    address: str
    """On this host's PCI bus."""
    driver: str
    """What is to drive it in the guest."""
    mac: str
    """The hardware address that its card gives it."""
    interface: str
    """What the guest calls it."""
    network: str | None = None
    """The address that it bears there, with the network's length."""

    @property
    def device(self) -> dict[str, object]:
        """It as QEMU is told to plug it in."""
        return {"driver": "vfio-pci", "host": self.address}


Functions = tuple[PassedFunction, ...]


def with_functions(identity: Identity, functions: Functions) -> Identity:
    """A guest that has these besides. Raises VicinalError for more than it has room for."""
    if len(identity.cards) + len(functions) >= MOST_DEVICES:
        raise VicinalError(
            f"{identity.name} has no room for {len(functions)} functions beside its "
            f"{len(identity.cards)} cards: {MOST_DEVICES - 1} in all",
            "spread them over more machines",
        )
    cards = (Card(each.mac, network=each.network or "", name=each.interface) for each in functions)
    drivers = tuple(dict.fromkeys(each.driver for each in functions))
    return replace(identity, cards=(*identity.cards, *cards), drivers=drivers)
