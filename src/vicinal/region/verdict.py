"""Telling the members of a region that a guest ended, the moment it does.

A guest that dies says no farewell, and its peers would find out by its silence, after
VICINAL_PEER_TIMEOUT. Whoever runs the guests sees them end, and can say so: the region has a
word for each member slot that only this manager writes.
"""

import mmap
from pathlib import Path

from vicinal.region import inspect
from vicinal.region.geometry import VERDICT_BYTES, verdicts_offset
from vicinal.region.states import SlotState

_ENDED = 1


def condemn(region: Path, hostname: str) -> list[int]:
    """Declare all members that call themselves `hostname` dead; return their slots.

    The name is what a member wrote, so a guest that lies harms itself and nobody else.
    """
    state = inspect(region, patience=0)
    members = [
        member
        for member in state.members
        if member.hostname == hostname and member.state is not SlotState.FREE
    ]
    first = state.offset + verdicts_offset(state.header.members)
    with (
        region.open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as memory,
        memoryview(memory) as every,
    ):
        for member in members:
            start = first + member.slot * VERDICT_BYTES
            with every[start : start + VERDICT_BYTES] as part, part.cast("Q") as place:
                # One aligned store: a peer sees all of it or nothing.
                place[0] = member.epoch << 32 | _ENDED
    return [member.slot for member in members]
