"""Regions in memory modules: an nvdimm's file on the host, /dev/dax in a guest.

A guest's kernel creates a /dev/dax for a module that begins with an *info block*, which names the
start of the data. Vicinal writes the info block together with the region. So no guest needs
configuration: its kernel finds the block at boot, and all guests find the same block. A guest that
was configured by hand (ndctl) wrote a block in the same format, perhaps with another start.

        0 ┌──────────────────────────┐
          │ unused                   │
     4096 ├──────────────────────────┤ INFO_OFFSET
          │ info block (one page)    │ INFO
     8192 ├──────────────────────────┤
          │ unused                   │
    2 MiB ├──────────────────────────┤ DATA_OFFSET, the first byte of /dev/dax
          │ region                   │
          └──────────────────────────┘ a multiple of ALIGNMENT
"""

import os
import struct
import uuid

from vicinal.region import geometry as layout
from vicinal.region.records import Record

ALIGNMENT = 2 << 20
"""Bytes of the unit in which guests map modules: huge pages of x86."""
DATA_OFFSET = ALIGNMENT
"""Offset of the region in a file that this package created."""

INFO_OFFSET = 4096
SIGNATURE = b"NVDIMM_DAX_INFO\0"
_VERSION = (1, 4)
_MEMORY_FOR_PAGES = 1
"""Mode: the guest keeps its page structures in its own memory instead of the module."""
_PAGE_NOTE_BYTES = 64

INFO = Record(
    4096,
    signature=("V16", 0),
    uuid=("V16", 16),
    parent=("V16", 32),
    flags=("<u4", 48),
    major=("<u2", 52),
    minor=("<u2", 54),
    data_offset=("<u8", 56),
    pages=("<u8", 64),
    mode=("<u4", 72),
    start_pad=("<u4", 76),
    end_trunc=("<u4", 80),
    align=("<u4", 84),
    page_bytes=("<u4", 88),
    note_bytes=("<u2", 92),
    checksum=("<u8", 4088),
)


def info_block(file_bytes: int) -> bytes:
    """Return the info block of a module whose file has `file_bytes` bytes, a multiple of
    ALIGNMENT."""
    major, minor = _VERSION
    values: dict[str, int | bytes] = {
        "signature": SIGNATURE,
        "uuid": uuid.uuid4().bytes,
        "major": major,
        "minor": minor,
        "data_offset": DATA_OFFSET,
        "pages": (file_bytes - DATA_OFFSET) // layout.PAGE,
        "mode": _MEMORY_FOR_PAGES,
        "align": ALIGNMENT,
        "page_bytes": layout.PAGE,
        "note_bytes": _PAGE_NOTE_BYTES,
    }
    return INFO.write({**values, "checksum": checksum(INFO.write(values))})


def checksum(block: bytes) -> int:
    """Fletcher's checksum, two sums of 32-bit words, of a block whose checksum field is zero."""
    low = high = 0
    for (word,) in struct.iter_unpack("<I", block):
        low = (low + word) & 0xFFFFFFFF
        high = (high + low) & 0xFFFFFFFF
    return high << 32 | low


def region_offset(fd: int, file_bytes: int) -> int:
    """Return the offset of the region in a file: 0, unless the file has an info block and no region
    at 0.

    The algorithm is the same as in provider/region/dax.c. A hostile guest may have written the
    block, so the result is always a multiple of a page below `file_bytes`. Raises OSError.
    """
    if os.pread(fd, 8, 0) == layout.MAGIC.to_bytes(8, "little"):
        return 0
    raw = os.pread(fd, INFO.size, INFO_OFFSET)
    if len(raw) < INFO.size:
        return 0
    block = INFO.read(raw)[0]
    if bytes(block["signature"]) != SIGNATURE:
        return 0
    begin, pad = int(block["data_offset"]), int(block["start_pad"]) if block["minor"] else 0
    if begin < INFO_OFFSET + INFO.size or begin + pad >= file_bytes:
        return 0
    return 0 if (begin + pad) % layout.PAGE else begin + pad


def module_bytes(region_bytes: int) -> int:
    """Return the length of a module's file for a region of `region_bytes`."""
    return DATA_OFFSET + layout.round_up(region_bytes, ALIGNMENT)
