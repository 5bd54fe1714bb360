"""What keeps Open MPI's one-sided accumulates of pairs right: a library in front of it.

Of MPI_DOUBLE_INT and other predefined pairs with gaps Open MPI's osc rdma moves too few bytes, and
no setting avoids that (docs/decisions/0028). libvicinal-pairs.so hands such calls on in a form
that is right, or ends them with an error. MPI's own shared memory needs nothing of it.
"""

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import MessagePath, library_to_preload
from vicinal.mpi.libraries import Family, Installation, Mpi

PAIRS_FILE = "libvicinal-pairs.so"


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
