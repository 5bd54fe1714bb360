"""The traffic between ranks of a job, and its paths, as recorded in regions.

A job over several hosts has a region on each host. Their figures are combined here, and travel
between hosts as JSON.
"""

from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, field, fields
from operator import add
from typing import Any

from vicinal.base.printable import printable
from vicinal.region import Member, RegionState
from vicinal.region.inspection import DirectCounts
from vicinal.region.states import Route

REGION_PATH = "region"
NETWORK_PATH = "network"

_LONGEST_NAME = 64


@dataclass(frozen=True)
class PairTraffic:
    """The traffic from one rank to another, over all their endpoints."""

    sender: int
    receiver: int
    path: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class SentBeyond:
    """The traffic of a rank over the network to a peer of which only the nonce is known."""

    sender: int
    nonce: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class JobTraffic:
    """The traffic of all ranks of a job."""

    label: str
    hostnames: dict[int, str]
    """The host name of each rank that joined a region."""
    pairs: list[PairTraffic]
    nonces: dict[str, int]
    """The rank of each nonce."""
    beyond: list[SentBeyond]
    """Traffic to peers that are in none of the regions; merge_traffic() identifies these peers."""
    direct: dict[int, DirectCounts] = field(default_factory=dict)
    """By rank, in order: of the ranks that did collectives or one-sided operations without
    messages."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self) | {
            "hostnames": {str(rank): n for rank, n in self.hostnames.items()},
            "direct": {str(rank): asdict(counts) for rank, counts in self.direct.items()},
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "JobTraffic":
        """Return the figures of another host, with its text made safe for a terminal. Raises
        ValueError."""
        try:
            return cls(
                _text(values["label"]),
                {int(rank): _text(name) for rank, name in values["hostnames"].items()},
                [
                    PairTraffic(
                        int(pair["sender"]),
                        int(pair["receiver"]),
                        _text(pair["path"]),
                        int(pair["messages"]),
                        int(pair["bytes"]),
                    )
                    for pair in values["pairs"]
                ],
                {_text(nonce): int(rank) for nonce, rank in values["nonces"].items()},
                [
                    SentBeyond(
                        int(sent["sender"]),
                        _text(sent["nonce"]),
                        int(sent["messages"]),
                        int(sent["bytes"]),
                    )
                    for sent in values["beyond"]
                ],
                {
                    int(rank): DirectCounts(*(int(counts[each.name]) for each in _DIRECT_FIELDS))
                    for rank, counts in values["direct"].items()
                },
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("the values are not a job's traffic") from error


_DIRECT_FIELDS = fields(DirectCounts)


def job_traffic(state: RegionState) -> JobTraffic:
    """Return the traffic in one region."""
    beyond = []
    for sent in state.beyond:
        sender = state.member(sent.sender)
        if sender is not None and sender.rank is not None:
            nonce = f"{sent.nonce:016x}"
            beyond.append(SentBeyond(sender.rank, nonce, sent.messages, sent.bytes))
    traffic = JobTraffic(
        label=state.header.label,
        hostnames={rank: member.hostname for rank, member in members_by_rank(state).items()},
        pairs=pair_traffic(state),
        nonces={f"{m.nonce:016x}": m.rank for m in state.members if m.rank is not None},
        beyond=beyond,
        direct=_sum_counts((m.rank, m.direct) for m in state.members if m.rank is not None),
    )
    return merge_traffic([traffic])


def merge_traffic(parts: Iterable[JobTraffic]) -> JobTraffic:
    """Combine the traffic of a job's regions: a peer outside one region may be a member of
    another."""
    label, names, nonces = "", dict[int, str](), dict[str, int]()
    total: dict[tuple[int, int, str], tuple[int, int]] = {}
    everything = list(parts)
    for part in everything:
        label = label or part.label
        names |= part.hostnames
        nonces |= part.nonces
    beyond = []
    pairs = [pair for part in everything for pair in part.pairs]
    for sent in (each for part in everything for each in part.beyond):
        if sent.nonce in nonces:
            receiver = nonces[sent.nonce]
            pairs.append(
                PairTraffic(sent.sender, receiver, NETWORK_PATH, sent.messages, sent.bytes)
            )
        else:
            beyond.append(sent)
    for pair in pairs:
        key = pair.sender, pair.receiver, pair.path
        messages, count = total.get(key, (0, 0))
        total[key] = messages + pair.messages, count + pair.bytes
    merged = [PairTraffic(*key, *figures) for key, figures in sorted(total.items())]
    direct = _sum_counts(item for part in everything for item in part.direct.items())
    return JobTraffic(label, names, merged, nonces, beyond, direct)


def _sum_counts(counts: Iterable[tuple[int, DirectCounts]]) -> dict[int, DirectCounts]:
    """The sums of each rank, in order of ranks, without those that are all 0."""
    total: dict[int, DirectCounts] = {}
    for rank, more in counts:
        before = astuple(total.get(rank, DirectCounts()))
        total[rank] = DirectCounts(*map(add, before, astuple(more)))
    return {rank: each for rank, each in sorted(total.items()) if each != DirectCounts()}


def pair_traffic(state: RegionState) -> list[PairTraffic]:
    """Return the pairs of ranks with a connection in the region, in order, with their current
    paths."""
    total: dict[tuple[int, int], tuple[int, int]] = {}
    moved = set()
    for connection in state.connections:
        sender, receiver = state.member(connection.sender), state.member(connection.receiver)
        # The receiver's slot may have a new owner by now.
        if sender is None or receiver is None or receiver.epoch != connection.receiver_epoch:
            continue
        if sender.rank is None or receiver.rank is None:
            continue
        messages, count = total.get((sender.rank, receiver.rank), (0, 0))
        total[sender.rank, receiver.rank] = (
            messages + connection.messages,
            count + connection.bytes,
        )
        if connection.route in (Route.NETWORK, Route.ENDED):  # `vicinal region detach`
            moved.add((sender.rank, receiver.rank))
    return [
        PairTraffic(*pair, NETWORK_PATH if pair in moved else REGION_PATH, messages, count)
        for pair, (messages, count) in sorted(total.items())
    ]


def members_by_rank(state: RegionState) -> dict[int, Member]:
    """Return the member of each rank's first endpoint, by rank."""
    ranked = [member for member in state.members if member.rank is not None]
    ranked.sort(key=lambda member: member.endpoint, reverse=True)
    return {member.rank: member for member in ranked if member.rank is not None}


def _text(value: Any) -> str:
    return printable(str(value)[:_LONGEST_NAME])
