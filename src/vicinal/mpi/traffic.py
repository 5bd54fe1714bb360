"""How much each rank of a job sent to each other one and by which path, as regions say.

A job over several hosts has a region on each: what they say is put together here, and goes
from host to host as JSON.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from vicinal.base.printable import printable
from vicinal.region import Member, RegionState
from vicinal.region.states import Route

REGION_PATH = "region"
NETWORK_PATH = "network"

_LONGEST_NAME = 64


@dataclass(frozen=True)
class PairTraffic:
    """What one rank sent to another, over all their endpoints."""

    sender: int
    receiver: int
    path: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class SentBeyond:
    """What a rank sent over the network to a peer of which only its nonce is known."""

    sender: int
    nonce: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class JobTraffic:
    """What all ranks of a job sent."""

    label: str
    hostnames: dict[int, str]
    """Of each rank that joined a region."""
    pairs: list[PairTraffic]
    nonces: dict[str, int]
    """Which rank has which nonce."""
    beyond: list[SentBeyond]
    """To whom of these none of the regions had; together() finds out who they are."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self) | {"hostnames": {str(rank): n for rank, n in self.hostnames.items()}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "JobTraffic":
        """What another host sent, whose text is made fit for a terminal; raises ValueError."""
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
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("these are no figures of a job's traffic") from error


def job_traffic(state: RegionState) -> JobTraffic:
    """What one region says."""
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
    )
    return together([traffic])


def together(parts: Iterable[JobTraffic]) -> JobTraffic:
    """What several regions of one job say: a peer beyond one may be a member of another."""
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
    return JobTraffic(label, names, merged, nonces, beyond)


def pair_traffic(state: RegionState) -> list[PairTraffic]:
    """The pairs of ranks that have a connection in the region, in order, and how they go now."""
    total: dict[tuple[int, int], tuple[int, int]] = {}
    moved = set()
    for connection in state.connections:
        sender, receiver = state.member(connection.sender), state.member(connection.receiver)
        # The receiver's slot may have a new owner since.
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
    """One member of each rank, the one of its first endpoint."""
    ranked = [member for member in state.members if member.rank is not None]
    ranked.sort(key=lambda member: member.endpoint, reverse=True)
    return {member.rank: member for member in ranked if member.rank is not None}


def _text(value: Any) -> str:
    return printable(str(value)[:_LONGEST_NAME])
