"""The libfabric libraries that tests use with the provider."""

from pathlib import Path

from vicinal.mpi.environment import mpi_prefix


def library_directory(library: str) -> Path | None:
    """The folder of the libfabric.so.1 in an MPI's wheel. None means the system's library."""
    if library == "system":
        return None
    prefix = mpi_prefix(library) / "lib"
    (found,) = (*prefix.glob("libfabric.so.1"), *prefix.glob("*/libfabric.so.1"))
    return found.parent
