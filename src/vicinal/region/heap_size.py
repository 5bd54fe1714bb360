"""The size of the heaps of a region for which the user names none.

Heaps in files are sparse, so they cost address space and no memory until they are used. In a file
for guests all memory is reserved, so heaps get only what its rounded length leaves over.
"""

import resource
from pathlib import Path

from vicinal.base.sizes import GIB, MIB
from vicinal.region import geometry as layout
from vicinal.region.creation import file_bytes
from vicinal.region.filesystem import filesystem_of

HEAP_BYTES = 64 * MIB
"""Bytes of each member's heap, if there are at most 64 members."""
HEAPS_BYTES = 4 * GIB
"""Bytes of all heaps together, which every member maps."""

_SHARE_OF_ADDRESSES = 8
"""Heaps take at most this part of a limited address space (ulimit -v)."""


def default_heap(
    members: int,
    section_bytes: int,
    *,
    directory: Path | None = None,
    in_memory: bool = False,
    most: int | None = None,
    for_guests: bool = False,
    for_nvdimm: bool = False,
) -> int:
    """Return the bytes of each member's heap for a region with this geometry.

    With `directory`, where the file will be, the result respects this process's limits, which the
    job's ranks inherit, and is 0 elsewhere than on tmpfs: huge pages would be reserved for parts of
    sections that no longer share one. With `in_memory`, for a region without a file, the result
    respects these limits, too. `most` limits the bytes of the whole region.
    """
    size = layout.region_bytes(members, section_bytes)
    if for_guests or for_nvdimm:
        fits = {"for_guests": for_guests, "for_nvdimm": for_nvdimm}
        room = file_bytes(members, section_bytes, **fits) - size
        if for_nvdimm:
            from vicinal.region.module import DATA_OFFSET

            room -= DATA_OFFSET
    else:
        room = HEAPS_BYTES
        if directory is not None:
            room = min(room, _room_at(directory, size))
        if in_memory:
            room = min(room, _room_in_limits(size))
    if most is not None:
        room = min(room, most - size)
    # An even number of pages leaves the section an odd number: see geometry.odd_pages().
    pair = 2 * layout.PAGE
    return max(0, min(HEAP_BYTES, room // members) // pair * pair)


def _room_at(directory: Path, size: int) -> int:
    try:
        if filesystem_of(directory) != "tmpfs":
            return 0
    except OSError:  # create() says what is wrong with the directory
        return 0
    return _room_in_limits(size)


def _room_in_limits(size: int) -> int:
    room = HEAPS_BYTES
    addresses, length = (
        resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)
    )
    if addresses != resource.RLIM_INFINITY:
        room = min(room, addresses // _SHARE_OF_ADDRESSES)
    if length != resource.RLIM_INFINITY:
        room = min(room, length - size)
    return room
