"""Virtual functions of a cluster: created on the host's cards, and assigned to nodes.

Only the records of the privileged helper say who owns a VF
(docs/how-to/vfs.md). So VFs that a killed command created or assigned are found
even if everything else is lost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from vicinal.base.codec import SPARSE, UNRECORDED
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster, Node
from vicinal.cluster.file.network import VfNetwork
from vicinal.cluster.plan.resource import Condition, Held, Observation, Resource, Standing
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_address, assigned_to, owner_of
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import (
    ETHERNET,
    INFINIBAND,
    PhysicalFunction,
    find_card,
)

_ACTIVE_SECONDS = 30.0
_MLX4 = "mlx4_core"
"""The driver whose port GUIDs the subnet manager grants, and whose node GUID cannot be set."""


def _of_this_host() -> Vfs:
    """The class is looked up at each call, because tests replace it by one of another host."""
    return Vfs()


def vf_resources(cluster: Cluster, vfs: Vfs, *, stays: Mapping[str, bool]) -> list[Resource]:
    """Return the VFs of a cluster, and the cards that must create them.

    `stays` maps each node's name to whether its VF keeps a driver of this host. Raises
    VicinalError for a card that is missing, or has too few VFs.
    """
    away: frozenset[str] = frozenset() if cluster.host_part is None else cluster.host_part.away
    wanted: dict[str, list[tuple[Node, VfNetwork]]] = {}
    cards = vfs.cards() if _needed(cluster) else []
    by_address = {card.address: card for card in cards}
    for node in cluster.nodes:
        if isinstance(node.network, VfNetwork):
            card = find_card(cards, node.network.card)
            wanted.setdefault(card.address, []).append((node, node.network))
    found: list[Resource] = []
    for address, nodes in wanted.items():
        card = by_address[address]
        present = [(node, network) for node, network in nodes if node.name not in away]
        makes = not card.vfs or card.owner == owner_of(cluster.name)
        if makes:
            _check_limit(cluster, card, len(present))
            count = _count(cluster, card, nodes)
            found.append(CardResource(cluster.name, address, count, vfs))
        else:
            _check_enough(cluster, card, len(present))
        for node, network in present:
            settings = _chosen(cluster, node.name, card, network.settings, vfs)
            settings.for_card(card)  # reports invalid settings before anything is created
            found.append(
                VfResource(
                    cluster.name,
                    node.name,
                    network.card,
                    address,
                    settings,
                    stays=stays[node.name],
                    made=makes,
                    vfs=vfs,
                )
            )
    return found


@dataclass(frozen=True)
class CardResource(Standing):
    """The VFs of one card, which this cluster creates."""

    KIND: ClassVar[str] = "vfs"

    cluster: str
    card: str
    """PCI address of the card."""
    count: int
    vfs: Vfs = field(default_factory=_of_this_host, metadata=UNRECORDED)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.card}"

    def observe(self) -> Observation:
        """Check the owner and the number of the card's VFs."""
        card = self._card()
        if card is None or not card.vfs:
            return Observation(Condition.ABSENT)
        if card.owner != owner_of(self.cluster):
            whose = card.owner or "another program"
            return Observation(Condition.BROKEN, f"its VFs belong to {whose}")
        if len(card.vfs) != self.count:
            return Observation(Condition.BROKEN, f"it has {len(card.vfs)} VFs")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Check that this user may create VFs.

        vf_resources() has checked their number.
        """
        del released
        self.vfs.check_helper()

    def create(self) -> None:
        """Create the VFs of the card."""
        self.vfs.create(self.card, self.count, owner=owner_of(self.cluster))

    def remove(self) -> None:
        card = self._card()
        if card is not None and card.owner == owner_of(self.cluster):
            self.vfs.remove(self.card, owner=owner_of(self.cluster))

    def _card(self) -> PhysicalFunction | None:
        cards = self.vfs.cards()
        return next((card for card in cards if card.address == self.card), None)


@dataclass(frozen=True)
class VfResource(Standing):
    """A virtual function that is assigned to a node and set up."""

    KIND: ClassVar[str] = "vf"

    cluster: str
    node: str
    named: str
    """The card's name in the cluster file, which names a card on each host."""
    card: str
    wanted: Settings = field(metadata=SPARSE)
    stays: bool
    made: bool
    vfs: Vfs = field(default_factory=_of_this_host, metadata=UNRECORDED)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.node}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The card's VFs, if this cluster created them."""
        return (f"{CardResource.KIND}/{self.card}",) if self.made else ()

    def observe(self) -> Observation:
        """Check that the records assign one VF to the node, and that the VF exists."""
        assigned = assigned_to(self.vfs, self._owner)
        if not assigned:
            return Observation(Condition.ABSENT)
        if len(assigned) > 1 or not self.vfs.host.device(assigned[0]).is_dir():
            return Observation(Condition.BROKEN, f"the assignment of {assigned[-1]} has changed")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Check that this user may set up a VF.

        vf_resources() has checked that the card has one.
        """
        del released
        self.vfs.check_helper()

    def create(self) -> None:
        """Assign the first free VF of the card, and set it up."""
        self.vfs.assign(
            self.card,
            owner=self._owner,
            settings=self.wanted,
            # The port of a guest's VF comes up in the guest.
            wait=_ACTIVE_SECONDS if self.stays else 0,
        )

    def remove(self) -> None:
        """Restore the VF's former settings, and release it."""
        self.vfs.release([], owner=self._owner)

    def at_this_host(self) -> Self:
        """Return this host's counterpart of another host's VF, with the same addresses.

        For a VM that moves to this host. Raises VicinalError if this host's card of the same name
        has no free VF.
        """
        card = find_card(self.vfs.cards(), self.named)
        if not any(each.free for each in card.vfs):
            raise VicinalError(
                f"{self.named} has no free VF for {self.node}",
                "check `vicinal vf list`, release a VF, and call `vicinal up`",
            )
        wanted = _for_driver(self.wanted, card)
        wanted.for_card(card)
        made = card.owner == owner_of(self.cluster)
        return type(self)(
            self.cluster,
            self.node,
            self.named,
            card.address,
            wanted,
            stays=self.stays,
            made=made,
            vfs=self.vfs,
        )

    @property
    def address(self) -> str | None:
        """PCI address of the node's VF; None while none is assigned."""
        return next(iter(assigned_to(self.vfs, self._owner)), None)

    def reserve(self) -> None:
        """Assign the first free VF of the card, without settings until announce()."""
        self.vfs.assign(self.card, owner=self._owner, wait=0)

    def announce(self) -> None:
        """Set up the reserved VF, so that the network finds its addresses on this host."""
        address = assigned_address(self.vfs, self._owner)
        self.vfs.assign(address, owner=self._owner, settings=self.wanted, wait=0)

    def withdraw(self) -> None:
        """Restore the VF's former settings, and keep it assigned.

        Its addresses are then used on the other host.
        """
        address = assigned_address(self.vfs, self._owner)
        self.vfs.withdraw(address, owner=self._owner)

    @property
    def _owner(self) -> str:
        return owner_of(self.cluster, self.node)


def _count(
    cluster: Cluster, card: PhysicalFunction, nodes: Sequence[tuple[Node, VfNetwork]]
) -> int:
    """Return the number of VFs that a card must create.

    If VMs can move between hosts, there are VFs for VMs of other hosts too.
    """
    host_part = cluster.host_part
    if host_part is None or not host_part.may_move:
        return len(nodes)
    stay = sum(node.backend is not BackEnd.VM for node, _ in nodes)
    names = {network.card for _, network in nodes}
    return min(card.most, stay + sum(host_part.vfs_of(name) for name in names))


def _needed(cluster: Cluster) -> bool:
    return any(isinstance(node.network, VfNetwork) for node in cluster.nodes)


def _check_limit(cluster: Cluster, card: PhysicalFunction, count: int) -> None:
    if count > card.most:
        raise VicinalError(
            f"{cluster.name} needs {count} VFs of {card.address}, whose firmware allows "
            f"{card.most}",
            "ask for fewer nodes, or raise the limit in the firmware (mstconfig: NUM_OF_VFS)",
        )


def _check_enough(cluster: Cluster, card: PhysicalFunction, count: int) -> None:
    """Raise VicinalError if a card whose VFs exist already has too few free VFs.

    VFs that another program created are used, and never recreated.
    """
    owners = {owner_of(cluster.name, node.name) for node in cluster.nodes}
    usable = [each for each in card.vfs if each.free or each.owner in owners]
    if len(usable) < count:
        reasons = "; ".join(
            f"{each.address}: {each.use or 'assigned to ' + each.owner}"
            for each in card.vfs
            if each not in usable
        )
        raise VicinalError(
            f"{cluster.name} needs {count} VFs of {card.address}, which has {len(usable)} "
            f"that are free" + (f" ({reasons})" if reasons else ""),
            f"release some, or remove all VFs: vicinal vf remove {card.address}",
        )


def _chosen(
    cluster: Cluster,
    node: str,
    card: PhysicalFunction,
    settings: Settings,
    vfs: Vfs,
) -> Settings:
    """Return the settings with chosen addresses where the file has none.

    The addresses are locally administered, and the same at each `up`. If VMs may move, they are
    derived from the hosts' own addresses, so that all hosts choose the same.
    """
    host_part = cluster.host_part
    moves = host_part is not None and host_part.may_move
    if host_part is not None and moves:
        base = sorted(host_part.addresses.values())
    else:
        base = [card.address]
        base += [vfs.host.read(each) for each in _addresses(card, vfs)]
    digest = hashlib.sha256("/".join([*base, cluster.name, node]).encode()).hexdigest()
    if card.kind == ETHERNET and settings.mac is None:
        return replace(settings, mac=_colons("02" + digest[:10]))
    # For an mlx4 card, the subnet manager grants a GUID if none is requested, on each host another.
    chooses = card.driver != _MLX4 or moves
    if card.kind == INFINIBAND and settings.port_guid is None and chooses:
        settings = replace(settings, port_guid=_colons("02" + digest[:14]))
    return _for_driver(settings, card)


def _for_driver(settings: Settings, card: PhysicalFunction) -> Settings:
    """Set an InfiniBand VF's node GUID to its port GUID, if the driver can set it."""
    if card.kind != INFINIBAND:
        return settings
    return replace(settings, node_guid=None if card.driver == _MLX4 else settings.port_guid)


def _addresses(card: PhysicalFunction, vfs: Vfs) -> list[Any]:
    """Return the files that identify this card among all hosts: hardware addresses, or GUIDs."""
    device = vfs.host.device(card.address)
    return sorted([*device.glob("net/*/address"), *device.glob("infiniband/*/node_guid")])


def _colons(digits: str) -> str:
    return ":".join(digits[start : start + 2] for start in range(0, len(digits), 2))
