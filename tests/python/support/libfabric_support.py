"""The libfabric libraries that the provider is tried with."""

from pathlib import Path

from vicinal.mpi.environment import mpi_prefix


def library_directory(library: str) -> Path | None:
    """Where the libfabric.so.1 of an MPI's wheel is; None for the system's."""
    if library == "system":
        return None
    prefix = mpi_prefix(library) / "lib"
    (found,) = (*prefix.glob("libfabric.so.1"), *prefix.glob("*/libfabric.so.1"))
    return found.parent
