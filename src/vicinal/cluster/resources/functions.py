"""Virtual functions of a cluster: made of its cards, and given to its nodes.

Only the records of the privileged helper say whose a function is
(docs/how-to/virtual-functions.md): what a killed command made or took is found there, whatever else
was lost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from vicinal.base.codec import SPARSE, UNRECORDED
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster, Node
from vicinal.cluster.file.network import FunctionNetwork
from vicinal.cluster.plan.resource import Condition, Held, Observation, Resource, Standing
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_address, assigned_to, owner_of
from vicinal.host.functions.settings import Settings
from vicinal.host.functions.sysfs import (
    ETHERNET,
    INFINIBAND,
    PhysicalFunction,
    find_card,
)

_ACTIVE_SECONDS = 30.0
_MLX4 = "mlx4_core"
"""Its GUIDs are the subnet manager's to grant, and that of the node cannot be set."""


def _of_this_host() -> Functions:
    """The class is looked up at each call, because tests replace it by one of another host."""
    return Functions()


def function_resources(
    cluster: Cluster, functions: Functions, *, stays: Mapping[str, bool]
) -> list[Resource]:
    """The functions that a cluster is to have, and the cards' that have to make them.

    `stays` says of each node whether its function stays with a driver of this host. Raises
    VicinalError for cards that are not there or have no room.
    """
    away: frozenset[str] = frozenset() if cluster.share is None else cluster.share.away
    wanted: dict[str, list[tuple[Node, FunctionNetwork]]] = {}
    cards = functions.cards() if _needed(cluster) else []
    by_address = {card.address: card for card in cards}
    for node in cluster.nodes:
        if isinstance(node.network, FunctionNetwork):
            card = find_card(cards, node.network.card)
            wanted.setdefault(card.address, []).append((node, node.network))
    found: list[Resource] = []
    for address, nodes in wanted.items():
        card = by_address[address]
        present = [(node, network) for node, network in nodes if node.name not in away]
        makes = not card.functions or card.owner == owner_of(cluster.name)
        if makes:
            _check_limit(cluster, card, len(present))
            count = _count(cluster, card, nodes)
            found.append(CardResource(cluster.name, address, count, functions))
        else:
            _check_enough(cluster, card, len(present))
        for node, network in present:
            settings = _chosen(cluster, node.name, card, network.settings, functions)
            settings.for_card(card)  # what it cannot have is told before anything is made
            found.append(
                FunctionResource(
                    cluster.name,
                    node.name,
                    network.card,
                    address,
                    settings,
                    stays=stays[node.name],
                    made=makes,
                    functions=functions,
                )
            )
    return found


@dataclass(frozen=True)
class CardResource(Standing):
    """The functions of one card, which this cluster has it make."""

    KIND: ClassVar[str] = "functions"

    cluster: str
    card: str
    """Its PCI address."""
    count: int
    functions: Functions = field(default_factory=_of_this_host, metadata=UNRECORDED)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.card}"

    def observe(self) -> Observation:
        """As many as were made, and ours."""
        card = self._card()
        if card is None or not card.functions:
            return Observation(Condition.ABSENT)
        if card.owner != owner_of(self.cluster):
            whose = card.owner or "somebody else"
            return Observation(Condition.BROKEN, f"its functions are of {whose}")
        if len(card.functions) != self.count:
            return Observation(Condition.BROKEN, f"it has {len(card.functions)} functions")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Whether this user may have a card make functions; how many it can was seen before."""
        del released
        self.functions.check_helper()

    def create(self) -> None:
        """Have the card make them."""
        self.functions.create(self.card, self.count, owner=owner_of(self.cluster))

    def remove(self) -> None:
        card = self._card()
        if card is not None and card.owner == owner_of(self.cluster):
            self.functions.remove(self.card, owner=owner_of(self.cluster))

    def _card(self) -> PhysicalFunction | None:
        cards = self.functions.cards()
        return next((card for card in cards if card.address == self.card), None)


@dataclass(frozen=True)
class FunctionResource(Standing):
    """One function, assigned to a node and set up."""

    KIND: ClassVar[str] = "function"

    cluster: str
    node: str
    named: str
    """The card as the cluster's file has it: what each host calls its own."""
    card: str
    wanted: Settings = field(metadata=SPARSE)
    stays: bool
    made: bool
    functions: Functions = field(default_factory=_of_this_host, metadata=UNRECORDED)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.node}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The card's functions, where this cluster made them."""
        return (f"{CardResource.KIND}/{self.card}",) if self.made else ()

    def observe(self) -> Observation:
        """The records have one, and it is there."""
        assigned = assigned_to(self.functions, self._owner)
        if not assigned:
            return Observation(Condition.ABSENT)
        if len(assigned) > 1 or not self.functions.host.device(assigned[0]).is_dir():
            return Observation(Condition.BROKEN, f"{assigned[-1]} is not as it was assigned")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Whether this user may set one up; that the card has one was seen before."""
        del released
        self.functions.check_helper()

    def create(self) -> None:
        """Take the card's first free one, and set it up."""
        self.functions.assign(
            self.card,
            owner=self._owner,
            settings=self.wanted,
            # The port of one that a guest is to have comes up in the guest.
            wait=_ACTIVE_SECONDS if self.stays else 0,
        )

    def remove(self) -> None:
        """Put it back as it was, and free it."""
        self.functions.release([], owner=self._owner)

    def at_this_host(self) -> Self:
        """The same of another host's, for a machine that comes here: with the same addresses.

        Raises VicinalError where this host's card of the name has none to give.
        """
        card = find_card(self.functions.cards(), self.named)
        if not any(each.free for each in card.functions):
            raise VicinalError(
                f"{self.named} has no free function for {self.node}",
                "let it have more: see `vicinal functions list`, and call `vicinal up`",
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
            functions=self.functions,
        )

    @property
    def address(self) -> str | None:
        """PCI address of the function that the node has; None: none yet."""
        return next(iter(assigned_to(self.functions, self._owner)), None)

    def reserve(self) -> None:
        """Take the card's first free one, and leave it as it is until announce()."""
        self.functions.assign(self.card, owner=self._owner, wait=0)

    def announce(self) -> None:
        """Set the one that was taken up: the network is to find its addresses here."""
        address = assigned_address(self.functions, self._owner)
        self.functions.assign(address, owner=self._owner, settings=self.wanted, wait=0)

    def withdraw(self) -> None:
        """Put it back as it was, and keep it: its addresses are to be found elsewhere."""
        address = assigned_address(self.functions, self._owner)
        self.functions.withdraw(address, owner=self._owner)

    @property
    def _owner(self) -> str:
        return owner_of(self.cluster, self.node)


def _count(
    cluster: Cluster, card: PhysicalFunction, nodes: Sequence[tuple[Node, FunctionNetwork]]
) -> int:
    """So many a card is to make: where machines can come from other hosts, some for these too."""
    share = cluster.share
    if share is None or not share.may_move:
        return len(nodes)
    stay = sum(node.backend is not BackEnd.VM for node, _ in nodes)
    names = {network.card for _, network in nodes}
    return min(card.most, stay + sum(share.functions_of(name) for name in names))


def _needed(cluster: Cluster) -> bool:
    return any(isinstance(node.network, FunctionNetwork) for node in cluster.nodes)


def _check_limit(cluster: Cluster, card: PhysicalFunction, count: int) -> None:
    if count > card.most:
        raise VicinalError(
            f"{cluster.name} needs {count} functions of {card.address}, whose firmware allows "
            f"{card.most}",
            "ask for fewer nodes, or raise the limit in the firmware (mstconfig: NUM_OF_VFS)",
        )


def _check_enough(cluster: Cluster, card: PhysicalFunction, count: int) -> None:
    """Functions that somebody else made are used as they are, and never made anew."""
    owners = {owner_of(cluster.name, node.name) for node in cluster.nodes}
    usable = [each for each in card.functions if each.free or each.owner in owners]
    if len(usable) < count:
        reasons = "; ".join(
            f"{each.address}: {each.use or 'assigned to ' + each.owner}"
            for each in card.functions
            if each not in usable
        )
        raise VicinalError(
            f"{cluster.name} needs {count} functions of {card.address}, which has {len(usable)} "
            f"that are free" + (f" ({reasons})" if reasons else ""),
            f"free some, or have none there: vicinal functions remove {card.address}",
        )


def _chosen(
    cluster: Cluster,
    node: str,
    card: PhysicalFunction,
    settings: Settings,
    functions: Functions,
) -> Settings:
    """The settings with addresses for what has none: the same at each `up`, and locally ours.

    What may move has them on all hosts alike, and they are made of the hosts' own addresses.
    """
    share = cluster.share
    moves = share is not None and share.may_move
    if share is not None and moves:
        base = sorted(share.addresses.values())
    else:
        base = [card.address]
        base += [functions.host.read(each) for each in _addresses(card, functions)]
    digest = hashlib.sha256("/".join([*base, cluster.name, node]).encode()).hexdigest()
    if card.kind == ETHERNET and settings.mac is None:
        return replace(settings, mac=_colons("02" + digest[:10]))
    # An mlx4 card's subnet manager grants what is not asked for, on each host another.
    chooses = card.driver != _MLX4 or moves
    if card.kind == INFINIBAND and settings.port_guid is None and chooses:
        settings = replace(settings, port_guid=_colons("02" + digest[:14]))
    return _for_driver(settings, card)


def _for_driver(settings: Settings, card: PhysicalFunction) -> Settings:
    """An InfiniBand function has one GUID for its node and its port, where the first can be set."""
    if card.kind != INFINIBAND:
        return settings
    return replace(settings, node_guid=None if card.driver == _MLX4 else settings.port_guid)


def _addresses(card: PhysicalFunction, functions: Functions) -> list[Any]:
    """What tells this card from those of other hosts: hardware addresses, or GUIDs."""
    device = functions.host.device(card.address)
    return sorted([*device.glob("net/*/address"), *device.glob("infiniband/*/node_guid")])


def _colons(digits: str) -> str:
    return ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))
