"""Which path the messages between each pair of ranks took, from what a region says."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.table import Table
from rich.text import Text

from vicinal.cluster.native import KEEPER_MODULE
from vicinal.cluster.native_layout import EXCHANGE
from vicinal.errors import VicinalError
from vicinal.launch.running import REGION_PREFIX
from vicinal.region import Member, RegionState, inspect
from vicinal.region.sizes import show_size

REGION_PATH = "region"


@dataclass(frozen=True)
class PairTraffic:
    """What one rank sent to another, over all their endpoints."""

    sender: int
    receiver: int
    path: str
    messages: int
    bytes: int


def pair_traffic(state: RegionState) -> list[PairTraffic]:
    """The pairs of ranks that have a connection through the region, in order."""
    total: dict[tuple[int, int], tuple[int, int]] = {}
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
    return [
        PairTraffic(sender, receiver, REGION_PATH, messages, count)
        for (sender, receiver), (messages, count) in sorted(total.items())
    ]


def members_by_rank(state: RegionState) -> dict[int, Member]:
    """One member of each rank, the one of its first endpoint."""
    ranked = [member for member in state.members if member.rank is not None]
    ranked.sort(key=lambda member: member.endpoint, reverse=True)
    return {member.rank: member for member in ranked if member.rank is not None}


def paths_table(state: RegionState) -> Table:
    """The table that `vicinal paths` shows."""
    # Text for what members wrote, which would be taken for markup otherwise.
    title = Text(f"Paths of {state.header.label or 'the job'}", style="table.title")
    table = Table(title=title, title_justify="left", highlight=True)
    for heading in ("from rank", "on", "to rank", "on", "path"):
        table.add_column(heading)
    for heading in ("messages", "volume"):
        table.add_column(heading, justify="right")
    members = members_by_rank(state)
    pairs = pair_traffic(state)
    for pair in pairs:
        table.add_row(
            str(pair.sender),
            Text(members[pair.sender].hostname),
            str(pair.receiver),
            Text(members[pair.receiver].hostname),
            pair.path,
            str(pair.messages),
            show_size(pair.bytes),
        )
    silent = len(members) * (len(members) - 1) - sum(p.sender != p.receiver for p in pairs)
    if silent:
        table.caption = f"{silent} of the pairs of {len(members)} ranks have not talked"
    return table


def running_regions() -> Iterator[Path]:
    """The regions of this user's jobs that run on native clusters now."""
    for keeper in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if KEEPER_MODULE in keeper.cmdline() and keeper.uids().real == os.getuid():
                for init in keeper.children():
                    exchange = Path(f"/proc/{init.pid}/root{EXCHANGE}")
                    yield from exchange.glob(f"{REGION_PREFIX}*")


def newest_region() -> RegionState:
    """The region of the job that was started last among those that run now.

    Raises VicinalError where there is none.
    """
    states = []
    for path in running_regions():
        with suppress(VicinalError):  # it may end just now
            states.append(inspect(path, patience=0))
    if not states:
        raise VicinalError(
            "no job of yours runs through a region now",
            "start one with `vicinal run`, or name a region: --region file:PATH",
        )
    return max(states, key=lambda state: state.header.created)
