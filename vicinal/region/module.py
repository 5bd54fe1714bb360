"""Regions in memory modules: an nvdimm's file on the host, /dev/dax in a guest.

A guest's kernel makes a /dev/dax of a module that begins with an *info block*, which says where
the data begin. Written here, with the region, no guest has to be configured: its kernel finds the
block when it boots, and all guests find the same. A guest that was configured by hand (ndctl) wrote
a block of its own, which says the same in the same way, maybe with another beginning.

        0 ┌──────────────────────────┐
          │ nothing                  │
     4096 ├──────────────────────────┤ INFO_OFFSET
          │ info block (one page)    │ INFO
     8192 ├──────────────────────────┤
          │ nothing                  │
    2 MiB ├──────────────────────────┤ DATA_OFFSET, the first byte of /dev/dax
          │ region                   │
          └──────────────────────────┘ a multiple of ALIGNMENT
"""

import os
import uuid

import numpy as np

from vicinal.region import format as layout

ALIGNMENT = 2 << 20
"""Guests map modules in units of so many bytes, huge pages of x86."""
DATA_OFFSET = ALIGNMENT
"""Where the region begins in a file that was made here."""

INFO_OFFSET = 4096
SIGNATURE = b"NVDIMM_DAX_INFO\0"
_VERSION = (1, 4)
_MEMORY_FOR_PAGES = 1
"""The guest keeps what it notes of each page in its memory, not in the module."""
_PAGE_NOTE_BYTES = 64

INFO = np.dtype(
    {
        "names": [
            *("signature", "uuid", "parent", "flags", "major", "minor", "data_offset", "pages"),
            *("mode", "start_pad", "end_trunc", "align", "page_bytes", "note_bytes", "checksum"),
        ],
        "formats": [
            *("V16", "V16", "V16", "<u4", "<u2", "<u2", "<u8", "<u8"),
            *("<u4", "<u4", "<u4", "<u4", "<u4", "<u2", "<u8"),
        ],
        "offsets": [0, 16, 32, 48, 52, 54, 56, 64, 72, 76, 80, 84, 88, 92, 4088],
        "itemsize": 4096,
    }
)


def info_block(file_bytes: int) -> bytes:
    """The info block of a module whose file has so many bytes, a multiple of ALIGNMENT."""
    block = np.zeros((), INFO)
    block["signature"] = SIGNATURE
    block["uuid"] = uuid.uuid4().bytes
    block["major"], block["minor"] = _VERSION
    block["data_offset"] = DATA_OFFSET
    block["pages"] = (file_bytes - DATA_OFFSET) // layout.PAGE
    block["mode"] = _MEMORY_FOR_PAGES
    block["align"] = ALIGNMENT
    block["page_bytes"] = layout.PAGE
    block["note_bytes"] = _PAGE_NOTE_BYTES
    block["checksum"] = checksum(block.tobytes())
    return block.tobytes()


def checksum(block: bytes) -> int:
    """Fletcher's, of a block whose own checksum is zero: two sums of its words of 32 bits."""
    words = np.frombuffer(block, "<u4").astype(np.uint64)
    low = np.cumsum(words, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    high = int(np.sum(low, dtype=np.uint64))
    return (high & 0xFFFFFFFF) << 32 | int(low[-1])


def region_offset(fd: int, file_bytes: int) -> int:
    """Where the region begins in a file: 0, unless there is an info block and none begins at 0.

    As provider/region/dax.c finds it. What stands there may have been written by a hostile guest:
    the answer is a multiple of a page below `file_bytes`, or 0. Raises OSError.
    """
    if os.pread(fd, 8, 0) == layout.MAGIC.to_bytes(8, "little"):
        return 0
    raw = os.pread(fd, INFO.itemsize, INFO_OFFSET)
    if len(raw) < INFO.itemsize:
        return 0
    block = np.frombuffer(raw, INFO)[0]
    if bytes(block["signature"]) != SIGNATURE:
        return 0
    begin, pad = int(block["data_offset"]), int(block["start_pad"]) if block["minor"] else 0
    if begin < INFO_OFFSET + INFO.itemsize or begin + pad >= file_bytes:
        return 0
    return 0 if (begin + pad) % layout.PAGE else begin + pad


def module_bytes(region_bytes: int) -> int:
    """The length of a module's file for a region of so many bytes."""
    return DATA_OFFSET + layout.round_up(region_bytes, ALIGNMENT)
