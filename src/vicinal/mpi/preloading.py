"""The libraries that are preloaded into a job's ranks by LD_PRELOAD.

libvicinal-heap.so places large allocations of an unmodified program in the region. The library
precedes the C library's allocator. After the provider has enabled an endpoint in a region with
heaps, large allocations come from the region.

libvicinal-pairs.so corrects Open MPI's one-sided accumulates of pairs. For MPI_DOUBLE_INT and other
predefined pairs with gaps, Open MPI's osc rdma moves too few bytes, and no setting avoids that
(docs/decisions/0028). The library passes such calls on in a correct form, or ends them with an
error. Jobs on MPI's own shared memory do not need the library.

libvicinal-mpi.so carries MPI's collectives and one-sided operations among the members of a region
by loads and stores. The MPI library would send messages, which take several times as long.
VICINAL_COLLECTIVES=off and VICINAL_WINDOWS=off together leave the library out.
"""

from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size
from vicinal.mpi.environment import WINDOWS, MessagePath, library_to_preload
from vicinal.mpi.libraries import Family, Installation, Mpi

HEAP_FILE = "libvicinal-heap.so"
DEFAULT_HEAP_BYTES = 256 * 1024 * 1024
"""Bytes for each member if `--heap region` gives no size."""

_REGION = "region"
PAIRS_FILE = "libvicinal-pairs.so"
MPI_FILE = "libvicinal-mpi.so"
COLLECTIVES = "VICINAL_COLLECTIVES"
"""Variable that keeps collectives out of the region if its value is `off`."""


def parse_heap(text: str) -> int | None:
    """Return the bytes that `--heap` asks for; None for `region` without a size.

    Raises VicinalError for text that is neither `region` nor `region:SIZE`.
    """
    memory, separator, size = text.partition(":")
    if memory != _REGION or (separator and not size):
        raise VicinalError(f"--heap cannot be {text!r}", "write --heap region or region:64M")
    if not separator:
        return None
    count = parse_size(size)
    if count == 0:
        raise VicinalError("a heap cannot have 0 bytes", "leave out --heap, or ask for more")
    return count


def heap_library() -> str:
    """Return the path of the heap's library. Raises VicinalError if it cannot be preloaded."""
    return library_to_preload(HEAP_FILE)


def _is_needed(mpi: Mpi | Installation, path: MessagePath) -> bool:
    return mpi.family is Family.OPENMPI and path is not MessagePath.SHARED_MEMORY


def pairs_library(mpi: Mpi | Installation, path: MessagePath) -> str | None:
    """Return the library for accumulates of pairs; None if the ranks do not need it or cannot load
    it."""
    if not _is_needed(mpi, path):
        return None
    try:
        return library_to_preload(PAIRS_FILE)
    except VicinalError:
        return None


def pairs_notes(mpi: Mpi | Installation, path: MessagePath) -> list[str]:
    """Return a note for the user of a job whose ranks need the library and cannot load it."""
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


def collectives_library(path: MessagePath, environment: Mapping[str, str]) -> str | None:
    """Return the library for collectives and windows in the region; None if the ranks are not to
    use it, or cannot load it. `environment` has the ranks' variables."""
    if path is not MessagePath.REGION:
        return None
    if environment.get(COLLECTIVES) == "off" and environment.get(WINDOWS) == "off":
        return None
    try:
        return library_to_preload(MPI_FILE)
    except VicinalError:
        return None


def preloaded_libraries(
    mpi: Mpi | Installation, path: MessagePath, environment: Mapping[str, str], *, heap: bool
) -> list[str]:
    """Return the libraries to preload: for accumulates of pairs, for collectives, and with `heap`
    for allocations in the region. `environment` has the ranks' variables.

    Raises VicinalError if `heap` is set and its library cannot be preloaded.
    """
    found = [pairs_library(mpi, path), collectives_library(path, environment)]
    return [each for each in found if each is not None] + ([heap_library()] if heap else [])


def preloading(libraries: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the value for LD_PRELOAD: the environment's value, followed by the libraries."""
    names = environment.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    return ":".join([*(name for name in names if name and name not in libraries), *libraries])
