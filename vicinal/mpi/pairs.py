"""What keeps Open MPI's one-sided accumulates of pairs right: a library in front of it.

Of MPI_DOUBLE_INT and other predefined pairs with gaps Open MPI's osc rdma moves too few bytes, and
no setting avoids that (docs/mpi-libraries.md). libvicinal-pairs.so hands such calls on in a form
that is right, or ends them with an error. MPI's own shared memory needs nothing of it.
"""

from vicinal.errors import VicinalError
from vicinal.mpi.environment import MessagePath, provider_directory
from vicinal.mpi.libraries import Family, Installation

PAIRS_FILE = "libvicinal-pairs.so"
_SEPARATORS = " :"
"""What separates names in LD_PRELOAD; no name can have one."""


def pairs_library(mpi: Installation, path: MessagePath) -> str | None:
    """The library for a job's ranks; None where they need none, or it cannot be had.

    It lies beside the provider, which a job over the network may do without.
    """
    if mpi.family is not Family.OPENMPI or path is MessagePath.SHARED_MEMORY:
        return None
    try:
        library = provider_directory() / PAIRS_FILE
    except VicinalError:
        return None
    fit = library.is_file() and not any(letter in _SEPARATORS for letter in str(library))
    return str(library) if fit else None
