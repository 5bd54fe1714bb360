"""The region's header, and the offsets of its parts: what creating a region needs.

vicinal.region.records has the records; vicinal.region.format has a picture of the region.
"""

import struct
from collections.abc import Mapping

MAGIC = int.from_bytes(b"VICINAL1", "little")
VERSION = 3

PAGE = 4096
LINE = 64

MEMBERS_MIN = 2
MEMBERS_MAX = 512
SECTION_MIN = 256 * 1024
SECTION_MAX = 1024 * 1024 * 1024
"""SECTION_MIN and SECTION_MAX are bytes of a section without its heap."""
HEAP_MAX = 1 << 40
RING_SLOTS_MIN = 16
RING_SLOTS_MAX = 1024
TRANSFERS = 128
NETWORK_LINES = 128
EXPOSURES = 48

SLOT_BYTES = LINE
VERDICT_BYTES = 8
NETWORK_LINE_BYTES = 32

HEADER_FIELDS = {
    "magic": ("<u8", 0),
    "version": ("<u4", 8),
    "members": ("<u4", 12),
    "region_bytes": ("<u8", 16),
    "id": ("V16", 24),
    "section_bytes": ("<u8", 40),
    "sections_offset": ("<u8", 48),
    "created": ("<u8", 56),
    "label": ("V64", 64),
    "heap_bytes": ("<u8", 128),
    "sparse_heaps": ("<u4", 136),
}
"""Type in numpy's notation, and offset, of each field of the header, which is one page long."""
LABEL_BYTES = 64

_PACKED = {"<u8": "<Q", "<u4": "<I", "V16": "16s", "V64": "64s"}


def header_bytes(values: Mapping[str, int | bytes]) -> bytes:
    """Return the header with these fields; all other fields are zero."""
    header = bytearray(PAGE)
    for name, value in values.items():
        kind, offset = HEADER_FIELDS[name]
        struct.pack_into(_PACKED[kind], header, offset, value)
    return bytes(header)


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of `unit` that is at least `value`."""
    return -(-value // unit) * unit


def slot_offset(slot: int) -> int:
    """Region offset of a member slot."""
    return PAGE + slot * SLOT_BYTES


def verdicts_offset(members: int) -> int:
    """Region offset of the table of verdicts."""
    return PAGE + members * SLOT_BYTES


def sections_offset(members: int) -> int:
    """Region offset of section 0."""
    return round_up(verdicts_offset(members) + members * VERDICT_BYTES, PAGE)


def section_offset(slot: int, members: int, section_bytes: int) -> int:
    """Region offset of a member's section. `section_bytes` includes the heap, here and below."""
    return sections_offset(members) + slot * section_bytes


def region_bytes(members: int, section_bytes: int) -> int:
    """Bytes of the whole region."""
    return section_offset(members, members, section_bytes)


def first_bytes(members: int, section_bytes: int, heap_bytes: int) -> int:
    """Bytes of a region without its heaps: what is reserved at first if the heaps are sparse."""
    return region_bytes(members, section_bytes - heap_bytes)


def credits_offset(members: int) -> int:
    """Section offset of the credit lines."""
    return round_up(PAGE + members * 4, LINE)


def connections_offset(members: int) -> int:
    """Section offset of the connection lines."""
    return credits_offset(members) + members * LINE


def transfers_offset(members: int) -> int:
    """Section offset of the transfer lines."""
    return connections_offset(members) + members * LINE


def network_offset(members: int) -> int:
    """Section offset of the lines about peers outside the region."""
    return transfers_offset(members) + TRANSFERS * LINE


def arena_offset(members: int) -> int:
    """Section offset of the arena, which holds rings and chunks."""
    return round_up(network_offset(members) + NETWORK_LINES * NETWORK_LINE_BYTES, PAGE)


def odd_pages(section_bytes: int) -> int:
    """Return the largest odd number of whole pages in `section_bytes`, in bytes.

    Members read each other's sections at the same offsets. If the distance between sections is a
    large power of two, these pages share a few sets of the TLB: a poll of 511 members then took
    five times as long (docs/decisions/0025).
    """
    pages = section_bytes // PAGE
    return (pages - (pages % 2 == 0)) * PAGE


def section_least(members: int) -> int:
    """Least bytes of a section without heap: tables, a smallest ring for each member, some
    chunks."""
    return round_up(arena_offset(members) + members * RING_SLOTS_MIN * LINE + 128 * 1024, PAGE)


def section_fault(members: int, section_bytes: int, heap_bytes: int = 0) -> str | None:
    """Return the fault of a region with this geometry as a phrase; None if the region is possible.

    The last `heap_bytes` of the `section_bytes` of each section are its heap.
    """
    if not MEMBERS_MIN <= members <= MEMBERS_MAX:
        return f"{members} members: {MEMBERS_MIN} to {MEMBERS_MAX} are possible"
    if not 0 <= heap_bytes <= HEAP_MAX:
        return f"heaps of {heap_bytes} bytes: up to 1024G are possible"
    if heap_bytes % PAGE:
        nearest = round_up(heap_bytes, PAGE)
        return f"heaps of {heap_bytes} bytes: take whole pages, such as {nearest >> 10} KiB"
    section_bytes -= heap_bytes
    if not SECTION_MIN <= section_bytes <= SECTION_MAX:
        return f"sections of {section_bytes} bytes: 256K to 1G are possible"
    if section_bytes % PAGE:
        nearest = round_up(section_bytes, PAGE)
        return f"sections of {section_bytes} bytes: take whole pages, such as {nearest >> 10} KiB"
    least = section_least(members)
    if section_bytes < least:
        return (
            f"sections of {section_bytes} bytes: {members} members need {least >> 10} KiB or more"
        )
    return None
