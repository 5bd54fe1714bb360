"""The libraries that stand before those of a job's ranks, as LD_PRELOAD names them.

libvicinal-heap.so places large allocations of an unmodified program in the region. It stands before
the C library's allocator. When the provider enables an endpoint in a region that has heaps, large
allocations from then on come from there.

libvicinal-pairs.so keeps Open MPI's one-sided accumulates of pairs right. Of MPI_DOUBLE_INT and
other predefined pairs with gaps Open MPI's osc rdma moves too few bytes, and no setting avoids that
(docs/decisions/0028). The library hands such calls on in a form that is right, or ends them with
an error. MPI's own shared memory needs nothing of it.
"""

from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size
from vicinal.mpi.environment import MessagePath, library_to_preload
from vicinal.mpi.libraries import Family, Installation, Mpi

HEAP_FILE = "libvicinal-heap.so"
DEFAULT_HEAP_BYTES = 256 * 1024 * 1024
"""Of each member, where `--heap region` says no size."""

_PLACE = "region"
PAIRS_FILE = "libvicinal-pairs.so"


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


def _is_needed(mpi: Mpi | Installation, path: MessagePath) -> bool:
    return mpi.family is Family.OPENMPI and path is not MessagePath.SHARED_MEMORY


def pairs_library(mpi: Mpi | Installation, path: MessagePath) -> str | None:
    """The library for a job's ranks; None where they need none, or it cannot be preloaded."""
    if not _is_needed(mpi, path):
        return None
    try:
        return library_to_preload(PAIRS_FILE)
    except VicinalError:
        return None


def pairs_notes(mpi: Mpi | Installation, path: MessagePath) -> list[str]:
    """What the user of a job has to know whose ranks need the library, and do not get it."""
    if not _is_needed(mpi, path):
        return []
    try:
        library_to_preload(PAIRS_FILE)
    except VicinalError as error:
        return [
            "one-sided accumulates of pairs with gaps, such as MPI_DOUBLE_INT, may be wrong in "
            f"Open MPI: {error}"
        ]
    return []


def preloaded_libraries(mpi: Mpi | Installation, path: MessagePath, *, heap: bool) -> list[str]:
    """For allocations in the region (`heap`), and for the accumulates of the MPI library.

    Raises VicinalError where the former is wanted and cannot be preloaded.
    """
    pairs = pairs_library(mpi, path)
    return ([] if pairs is None else [pairs]) + ([heap_library()] if heap else [])


def preloading(libraries: Sequence[str], environment: Mapping[str, str]) -> str:
    """The value for LD_PRELOAD: what it is in an environment, and the libraries behind that."""
    names = environment.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    return ":".join([*(name for name in names if name and name not in libraries), *libraries])
