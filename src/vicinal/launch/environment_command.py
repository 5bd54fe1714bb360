"""`vicinal env`: prints the variables that select Vicinal, for a shell or a job script."""

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import MessagePath, mpi_environment, provider_path
from vicinal.mpi.libfabric import check_job_loads_provider
from vicinal.mpi.libraries import Installation, Mpi, installation
from vicinal.mpi.option import MPI_PREFIX, chosen_mpi
from vicinal.mpi.preloading import pairs_notes, preloaded_libraries, preloading
from vicinal.mpi.variables import check_variables


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="env")(env)


def env(
    mpi: Annotated[
        Mpi | None, typer.Option(help="The MPI library that the application uses.")
    ] = None,
    mpi_prefix: Annotated[Path | None, MPI_PREFIX] = None,
    path: Annotated[MessagePath, typer.Option(help="How messages travel.")] = MessagePath.REGION,
    region: Annotated[
        str | None,
        typer.Option(
            metavar="file:PATH|socket:PATH|pci:ADDRESS|dax:PATH",
            help="The region to use. By default the provider searches: an ivshmem device, "
            "then /dev/dax*, /run/vicinal/region, /dev/shm/vicinal-region.",
        ),
    ] = None,
    heap: Annotated[
        bool,
        typer.Option(
            "--heap",
            help="Place large allocations in the region, which must have heaps. This also prints "
            "LD_PRELOAD for the program; a launcher must forward LD_PRELOAD to the ranks.",
        ),
    ] = False,
    cma: Annotated[
        bool, typer.Option(help="Use cross-memory attach; only for the path shared-memory.")
    ] = True,
) -> None:
    """Print the variables that make an MPI library use a path, as `export NAME=VALUE` lines.

    A comment says why FI_PROVIDER_PATH has its value.

    The preloaded libraries carry collectives (unless VICINAL_COLLECTIVES=off) and one-sided
    operations (unless VICINAL_WINDOWS=off) through the region, and keep Open MPI's accumulates of
    pairs correct. If mpirun starts ranks on other hosts, forward the variable:
    mpirun -x LD_PRELOAD.
    """
    check_variables(os.environ)
    chosen = chosen_mpi(mpi, mpi_prefix)
    if chosen is None:
        raise typer.BadParameter("name the MPI library", param_hint="'--mpi' or '--mpi-prefix'")
    if path is MessagePath.REGION:
        known = chosen if isinstance(chosen, Installation) else _installed(chosen)
        if known is not None:
            check_job_loads_provider(known)
    variables = mpi_environment(chosen, path, region, cma=cma, others=True)
    if heap and path is not MessagePath.REGION:
        raise VicinalError(
            f"the path {path.value} has no region for a heap",
            "leave out --heap, or use --path region",
        )
    for note in pairs_notes(chosen, path):
        typer.echo(f"vicinal: note: {note}", err=True)
    libraries = preloaded_libraries(chosen, path, os.environ, heap=heap)
    if libraries:
        variables["LD_PRELOAD"] = preloading(libraries, os.environ)
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    if path is MessagePath.REGION:
        # The last line, because a shell that gets all lines as one would ignore the rest.
        typer.echo(f"# FI_PROVIDER_PATH: {provider_path(chosen)[1]}")


def _installed(mpi: Mpi) -> Installation | None:
    with suppress(VicinalError):
        return installation(mpi)
    return None
