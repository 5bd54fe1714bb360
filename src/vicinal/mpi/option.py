"""How commands let their user choose an MPI library: by name, or by where it is."""

from pathlib import Path

import typer

from vicinal.base.errors import VicinalError
from vicinal.mpi.libraries import Installation, Mpi, installation_in

MPI_PREFIX = typer.Option(
    metavar="DIRECTORY",
    help="An MPI library of your own instead: the directory that holds its bin/ and lib/.",
)


def chosen_mpi(mpi: Mpi | None, prefix: Path | None) -> Mpi | Installation | None:
    """The MPI library of --mpi or --mpi-prefix; None where neither was given.

    Raises VicinalError for both, and where the prefix holds no MPI library.
    """
    if prefix is None:
        return mpi
    if mpi is not None:
        raise VicinalError("--mpi and --mpi-prefix name two MPI libraries", "leave out one of them")
    return installation_in(prefix)
