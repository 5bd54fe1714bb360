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

MAGIC = int.from_bytes(b"VICINAL1", "little")
VERSION = 1

PAGE = 4096
LINE = 64

MEMBERS_MIN = 2
MEMBERS_MAX = 512
SECTION_MIN = 256 * 1024
SECTION_MAX = 1024 * 1024 * 1024
"""This and SECTION_MIN are of a section without its heap."""
HEAP_MAX = 1 << 40
RING_SLOTS_MIN = 16
RING_SLOTS_MAX = 1024
TRANSFERS = 128
NETWORK_LINES = 128
EXPOSURES = 48

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


HEADER = _record(
    PAGE,
    magic=("<u8", 0),
    version=("<u4", 8),
    members=("<u4", 12),
    region_bytes=("<u8", 16),
    id=("V16", 24),
    section_bytes=("<u8", 40),
    sections_offset=("<u8", 48),
    created=("<u8", 56),
    label=("V64", 64),
    heap_bytes=("<u8", 128),
)

# claim = epoch << 32 | SlotState
# way = epoch << 32 | 1 if the manager wants that member to be reached over the network
SLOT = _record(LINE, claim=("<u8", 0), way=("<u8", 8))

# verdict = epoch << 32 | 1 once the host's manager saw that member end
VERDICT = _record(8, verdict=("<u8", 0))

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
NETWORK_LINE = _record(32, nonce=("<u8", 0), messages=("<u8", 8), bytes=("<u8", 16))


def round_up(value: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `value`."""
    return -(-value // unit) * unit


def slot_offset(slot: int) -> int:
    """Region offset of a member slot."""
    return PAGE + slot * SLOT.itemsize


def verdicts_offset(members: int) -> int:
    """Region offset of the table of verdicts."""
    return PAGE + members * SLOT.itemsize


def sections_offset(members: int) -> int:
    """Region offset of section 0."""
    return round_up(verdicts_offset(members) + members * VERDICT.itemsize, PAGE)


def section_offset(slot: int, members: int, section_bytes: int) -> int:
    """Region offset of a member's section; `section_bytes` with the heap, here and below."""
    return sections_offset(members) + slot * section_bytes


def region_bytes(members: int, section_bytes: int) -> int:
    """The size of a whole region."""
    return section_offset(members, members, section_bytes)


def credits_offset(members: int) -> int:
    """Section offset of the credit lines."""
    return round_up(PAGE + members * 4, LINE)


def connections_offset(members: int) -> int:
    """Section offset of the connection lines."""
    return credits_offset(members) + members * CREDIT.itemsize


def transfers_offset(members: int) -> int:
    """Section offset of the transfer lines."""
    return connections_offset(members) + members * CONNECTION.itemsize


def network_offset(members: int) -> int:
    """Section offset of the lines about peers beyond the region."""
    return transfers_offset(members) + TRANSFERS * TRANSFER.itemsize


def arena_offset(members: int) -> int:
    """Section offset of the arena, where rings and chunks lie."""
    return round_up(network_offset(members) + NETWORK_LINES * NETWORK_LINE.itemsize, PAGE)


def section_least(members: int) -> int:
    """The least bytes a section may have: tables, a smallest ring for each, some chunks."""
    return round_up(arena_offset(members) + members * RING_SLOTS_MIN * LINE + 128 * 1024, PAGE)


def section_fault(members: int, section_bytes: int, heap_bytes: int = 0) -> str | None:
    """What is wrong with a region of this geometry, or None if it can be made.

    The last `heap_bytes` of the `section_bytes` of each section are its heap.
    """
    if not MEMBERS_MIN <= members <= MEMBERS_MAX:
        return f"{members} members: {MEMBERS_MIN} to {MEMBERS_MAX} are possible"
    if not 0 <= heap_bytes <= HEAP_MAX:
        return f"heaps of {heap_bytes} bytes: up to 1024G are possible"
    if heap_bytes % PAGE:
        nearest = round_up(heap_bytes, PAGE)
        return f"heaps of {heap_bytes} bytes: take whole pages, such as {nearest} bytes"
    section_bytes -= heap_bytes
    if not SECTION_MIN <= section_bytes <= SECTION_MAX:
        return f"sections of {section_bytes} bytes: 256K to 1G are possible"
    if section_bytes % PAGE:
        nearest = round_up(section_bytes, PAGE)
        return f"sections of {section_bytes} bytes: take whole pages, such as {nearest} bytes"
    least = section_least(members)
    if section_bytes < least:
        return f"sections of {section_bytes} bytes: {members} members need at least {least}"
    return None
