"""The records of a region: bytes and named fields, without numpy.

vicinal.region.format has a picture of the region. Loading numpy takes longer than the rest of a
short command, and reading a region does not need numpy.
"""

import struct
from collections.abc import Mapping

from vicinal.region.geometry import (
    EXPOSURES,
    HEADER_FIELDS,
    LINE,
    NETWORK_LINE_BYTES,
    PAGE,
    SLOT_BYTES,
    VERDICT_BYTES,
)

Value = int | bytes

_KINDS = {"u8": "Q", "u4": "I", "u2": "H"}


class Record:
    """A record of fixed size, little endian, with named fields."""

    def __init__(self, size: int, **fields: tuple[str, int]) -> None:
        self.size = size
        """Size of the record in bytes."""
        self.fields = fields
        """Type in numpy's notation, and offset, of each field."""
        form, end = "<", 0
        ordered = sorted(fields.items(), key=lambda each: each[1][1])
        for _, (kind, offset) in ordered:
            form += f"{offset - end}x" if offset > end else ""
            form += f"{kind[1:]}s" if kind.startswith("V") else _KINDS[kind.removeprefix("<")]
            end = struct.calcsize(form)
        self._names = [name for name, _ in ordered]
        self._struct = struct.Struct(f"{form}{size - end}x")

    def read(self, data: bytes) -> list[dict[str, Value]]:
        """Split bytes into records, each as values by field name."""
        found = self._struct.iter_unpack(data)
        return [dict(zip(self._names, each, strict=True)) for each in found]

    def used(self, data: bytes) -> list[tuple[int, dict[str, Value]]]:
        """Split bytes into records as read() does; return those that are not all zero, with their
        numbers."""
        zero = bytes(self.size)
        found = []
        for number in range(len(data) // self.size):
            part = data[number * self.size : (number + 1) * self.size]
            if part != zero:
                values = zip(self._names, self._struct.unpack(part), strict=True)
                found.append((number, dict(values)))
        return found

    def write(self, values: Mapping[str, Value]) -> bytes:
        """Return the bytes of one record; fields without a value are zero."""
        nothing = {name: b"" if self.fields[name][0].startswith("V") else 0 for name in self._names}
        return self._struct.pack(*({**nothing, **values}[name] for name in self._names))

    @property
    def zero(self) -> dict[str, Value]:
        """The field values of a record of zero bytes."""
        return self.read(bytes(self.size))[0]


NO_RANK = 0xFFFFFFFF
"""Value of `rank` in the section of a member without a rank from a launcher."""

HEADER = Record(PAGE, **HEADER_FIELDS)

# claim = epoch << 32 | SlotState; requested_route = epoch << 32 | RequestedRoute
SLOT = Record(SLOT_BYTES, claim=("<u8", 0), requested_route=("<u8", 8))

# verdict = epoch << 32 | 1 after the host's manager saw the member end
VERDICT = Record(VERDICT_BYTES, verdict=("<u8", 0))

# sequence: 0 or odd if the record holds nothing valid
EXPOSURE = Record(
    LINE,
    sequence=("<u8", 0),
    key=("<u8", 8),
    address=("<u8", 16),
    length=("<u8", 24),
    offset=("<u8", 32),
    slot=("<u4", 40),
    epoch=("<u4", 44),
    access=("<u4", 48),
)

# home: the id of the region in the member's address, if that is another region than this one
SECTION = Record(
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
    alias=("<u4", 56),
    job=("<u4", 60),
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
    windows=("<u4", 480),
    collectives=("<u8", 512),
    collective_bytes=("<u8", 520),
    one_sided=("<u8", 528),
    one_sided_bytes=("<u8", 536),
    exposures=(f"V{EXPOSURES * LINE}", 1024),
)

# consumed = connection id << 32 | slots consumed
CREDIT = Record(LINE, consumed=("<u8", 0), returned=("V56", 8))

CONNECTION = Record(
    LINE,
    id=("<u4", 0),
    receiver_epoch=("<u4", 4),
    ring=("<u8", 8),
    slots=("<u4", 16),
    route=("<u4", 20),
    messages=("<u8", 24),
    bytes=("<u8", 32),
    ended=("<u4", 40),
)

TRANSFER = Record(
    LINE,
    id=("<u8", 0),
    claimed=("<u8", 8),
    done=("<u8", 16),
    offset=("<u8", 24),
    peer=("<u8", 32),
)


# nonce: 0 if the line is unused
NETWORK_LINE = Record(NETWORK_LINE_BYTES, nonce=("<u8", 0), messages=("<u8", 8), bytes=("<u8", 16))
