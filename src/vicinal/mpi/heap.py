"""Large allocations of an unmodified program in the region: the library that does it.

libvicinal-heap.so stands before the C library's allocator. When the provider enables an
endpoint in a region that has heaps, allocations from then on that are large come from there.
"""

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size
from vicinal.mpi.environment import library_to_preload

HEAP_FILE = "libvicinal-heap.so"
DEFAULT_HEAP_BYTES = 256 * 1024 * 1024
"""Of each member, where `--heap region` says no size."""

_PLACE = "region"


def parse_heap(text: str) -> int | None:
    """The bytes that `--heap` asks for: None for `region`, which leaves them open.

    Raises VicinalError for what is neither `region` nor `region:SIZE`.
    """
    place, separator, size = text.partition(":")
    if place != _PLACE or (separator and not size):
        raise VicinalError(f"{text!r} is no place for a heap", "write --heap region or region:64M")
    if not separator:
        return None
    count = parse_size(size)
    if count == 0:
        raise VicinalError("a heap of no bytes is none", "leave out --heap, or ask for more")
    return count


def heap_library() -> str:
    """The path of the library. Raises VicinalError where it cannot be preloaded."""
    return library_to_preload(HEAP_FILE)
