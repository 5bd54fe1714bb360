"""Telling the members of a region that a guest ended, the moment it does.

A guest that dies says no farewell, and its peers would find out by its silence, after
VICINAL_PEER_TIMEOUT. Whoever runs the guests sees them end, and can say so: the region has a
word for each member slot that only this manager writes.
"""

import mmap
from pathlib import Path

from vicinal.region import inspect
from vicinal.region.geometry import verdicts_offset
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
    import numpy as np  # most commands that load this module never need it

    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        count = state.header.members
        start = state.offset + verdicts_offset(count)
        verdicts = np.frombuffer(memory, "<u8", count, start)
        for member in members:
            # One aligned store: a peer sees all of it or nothing.
            verdicts[member.slot] = member.epoch << 32 | _ENDED
        del verdicts  # or the memory could not be unmapped
    return [member.slot for member in members]
