"""The libraries that stand before those of a job's ranks, as LD_PRELOAD names them."""

from collections.abc import Mapping, Sequence

from vicinal.mpi.environment import MessagePath
from vicinal.mpi.heap import heap_library
from vicinal.mpi.libraries import Installation, Mpi
from vicinal.mpi.pairs import pairs_library


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
