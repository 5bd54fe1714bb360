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

import numpy as np

from vicinal.region import records
from vicinal.region.geometry import (
    EXPOSURES,
    HEAP_MAX,
    LINE,
    MAGIC,
    MEMBERS_MAX,
    MEMBERS_MIN,
    NETWORK_LINES,
    PAGE,
    RING_SLOTS_MAX,
    RING_SLOTS_MIN,
    SECTION_MAX,
    SECTION_MIN,
    TRANSFERS,
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
from vicinal.region.records import NO_RANK, Record
from vicinal.region.states import Liveness, RequestedRoute, Route, SlotState

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
    "RequestedRoute",
    "Route",
    "SlotState",
    "arena_offset",
    "connections_offset",
    "credits_offset",
    "dtype_of",
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


def dtype_of(record: Record) -> np.dtype[np.void]:
    """Return a record as a numpy type."""
    kinds, offsets = zip(*record.fields.values(), strict=True)
    return np.dtype(
        {
            "names": list(record.fields),
            "formats": list(kinds),
            "offsets": list(offsets),
            "itemsize": record.size,
        }
    )


HEADER = dtype_of(records.HEADER)
SLOT = dtype_of(records.SLOT)
VERDICT = dtype_of(records.VERDICT)
EXPOSURE = dtype_of(records.EXPOSURE)
SECTION = dtype_of(records.SECTION)
CREDIT = dtype_of(records.CREDIT)
CONNECTION = dtype_of(records.CONNECTION)
TRANSFER = dtype_of(records.TRANSFER)
NETWORK_LINE = dtype_of(records.NETWORK_LINE)
