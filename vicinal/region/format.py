"""The bytes of a region: the same layout as provider/region/layout.h, seen from Python.

    0 ┌──────────────────────────┐
      │ header (one page)        │ HEADER
 4096 ├──────────────────────────┤
      │ slot table               │ SLOT[members], then VERDICT[members]
      ├──────────────────────────┤ sections_offset(members)
      │ section of member 0      │ SECTION (one page), doorbells u32[members],
      ├──────────────────────────┤ CREDIT[members], CONNECTION[members],
      │ section of member 1      │ TRANSFER[TRANSFERS],
      │                          │ NETWORK_LINE[NETWORK_LINES], arena, heap
      └──────────────────────────┘ region_bytes(members, section_bytes)

All integers are little endian; offsets and sizes are in bytes.
"""

from enum import IntEnum

import numpy as np

from vicinal.region.geometry import (
    EXPOSURES,
    HEADER_FIELDS,
    HEAP_MAX,
    LINE,
    MAGIC,
    MEMBERS_MAX,
    MEMBERS_MIN,
    NETWORK_LINE_BYTES,
    NETWORK_LINES,
    PAGE,
    RING_SLOTS_MAX,
    RING_SLOTS_MIN,
    SECTION_MAX,
    SECTION_MIN,
    SLOT_BYTES,
    TRANSFERS,
    VERDICT_BYTES,
    VERSION,
    arena_offset,
    connections_offset,
    credits_offset,
    network_offset,
    region_bytes,
    round_up,
    section_fault,
    section_least,
    section_offset,
    sections_offset,
    slot_offset,
    transfers_offset,
    verdicts_offset,
)

__all__ = [
    "CONNECTION",
    "CREDIT",
    "EXPOSURE",
    "EXPOSURES",
    "HEADER",
    "HEAP_MAX",
    "LINE",
    "MAGIC",
    "MEMBERS_MAX",
    "MEMBERS_MIN",
    "NETWORK_LINE",
    "NETWORK_LINES",
    "NO_RANK",
    "PAGE",
    "RING_SLOTS_MAX",
    "RING_SLOTS_MIN",
    "SECTION",
    "SECTION_MAX",
    "SECTION_MIN",
    "SLOT",
    "TRANSFER",
    "TRANSFERS",
    "VERDICT",
    "VERSION",
    "Liveness",
    "SlotState",
    "Way",
    "Wish",
    "arena_offset",
    "connections_offset",
    "credits_offset",
    "network_offset",
    "region_bytes",
    "round_up",
    "section_fault",
    "section_least",
    "section_offset",
    "sections_offset",
    "slot_offset",
    "transfers_offset",
    "verdicts_offset",
]

NO_RANK = 0xFFFFFFFF
"""What `rank` says in the section of a member that no launcher gave one."""


class SlotState(IntEnum):
    """The lower half of a member slot's claim word."""

    FREE = 0
    CLAIMED = 1
    """Won by a member that is still writing its section."""
    JOINED = 2
    """Its section is valid."""
    HELD = 3
    """Its member left, but the member's process lives and has memory in the heap."""


class Liveness(IntEnum):
    """How others find out that the owner of a section died."""

    LOCK = 1
    """It holds a lock on the byte of the region's file that has its slot's number."""
    HEARTBEAT = 2
    """It counts `heartbeat` up, ten times a second."""


class Way(IntEnum):
    """How what the owner of a connection line sends goes now."""

    REGION = 0
    MOVES = 1
    """It changes just now from one way to the other."""
    NETWORK = 2
    """There is no ring then, and `id` is 0."""
    STAYS = 3
    """It is to go over the network, and there is none that works."""
    ENDED = 4
    """Over the network for good: the region was of no use for the two."""


class Wish(IntEnum):
    """How the manager wants a member to be reached: the lower half of its slot's `way`."""

    REGION = 0
    NETWORK = 1
    LEAVE = 2
    """Over the network, and then it leaves the region."""
    RETURN = 3
    """As REGION; and if it has left, it may come back."""


def _record(size: int, **fields: tuple[str, int]) -> np.dtype[np.void]:
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": size,
        }
    )


HEADER = _record(PAGE, **HEADER_FIELDS)

# claim = epoch << 32 | SlotState
# way = epoch << 32 | 1 if the manager wants that member to be reached over the network
SLOT = _record(SLOT_BYTES, claim=("<u8", 0), way=("<u8", 8))

# verdict = epoch << 32 | 1 once the host's manager saw that member end
VERDICT = _record(VERDICT_BYTES, verdict=("<u8", 0))

# sequence: 0 or odd where there is nothing
EXPOSURE = _record(
    LINE,
    sequence=("<u8", 0),
    key=("<u8", 8),
    address=("<u8", 16),
    length=("<u8", 24),
    place=("<u8", 32),
    slot=("<u4", 40),
    epoch=("<u4", 44),
    access=("<u4", 48),
)

# home: the id of the region that the member's address names, if that is another than this
SECTION = _record(
    PAGE,
    nonce=("<u8", 0),
    epoch=("<u4", 8),
    liveness=("<u4", 12),
    rank=("<u4", 16),
    pid=("<u4", 20),
    endpoint=("<u4", 24),
    arena_used=("<u4", 28),
    home=("V16", 32),
    home_slot=("<u4", 48),
    home_epoch=("<u4", 52),
    guest=("<u4", 56),
    heartbeat=("<u8", 64),
    hostname=("V64", 128),
    active=("V64", 192),
    sleeping=("<u4", 256),
    membarrier=("<u4", 260),
    process=("<u8", 264),
    interrupt=("<u8", 272),
    exposed=("<u8", 320),
    reaching=("<u8", 384),
    core=("<u4", 448),
    core_name=("V28", 452),
    exposures=(f"V{EXPOSURES * LINE}", 1024),
)

# consumed = connection id << 32 | slots consumed
CREDIT = _record(LINE, consumed=("<u8", 0), returned=("V56", 8))

CONNECTION = _record(
    LINE,
    id=("<u4", 0),
    receiver_epoch=("<u4", 4),
    ring=("<u8", 8),
    slots=("<u4", 16),
    way=("<u4", 20),
    messages=("<u8", 24),
    bytes=("<u8", 32),
    ended=("<u4", 40),
)

TRANSFER = _record(
    LINE,
    id=("<u8", 0),
    claimed=("<u8", 8),
    done=("<u8", 16),
    place=("<u8", 24),
    peer=("<u8", 32),
)


# nonce: 0 where there is nothing
NETWORK_LINE = _record(NETWORK_LINE_BYTES, nonce=("<u8", 0), messages=("<u8", 8), bytes=("<u8", 16))
