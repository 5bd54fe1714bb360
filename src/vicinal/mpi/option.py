"""The options by which a user chooses an MPI library: by name, or by directory."""

from pathlib import Path

import typer

from vicinal.base.errors import VicinalError
from vicinal.mpi.libraries import Installation, Mpi, installation_in

MPI_PREFIX = typer.Option(
    metavar="DIRECTORY",
    help="Another MPI library: the directory that holds its bin/ and lib/.",
)


def chosen_mpi(mpi: Mpi | None, prefix: Path | None) -> Mpi | Installation | None:
    """Return the MPI library of --mpi or --mpi-prefix; None if neither was given.

    Raises VicinalError if both were given, or if the prefix holds no MPI library.
    """
    if prefix is None:
        return mpi
    if mpi is not None:
        raise VicinalError(
            "--mpi and --mpi-prefix name two MPI libraries", "leave out one of the two"
        )
    return installation_in(prefix)
