"""`vicinal env`: the variables that select Vicinal, for a shell or a job script."""

import shlex
from typing import Annotated

import typer

from vicinal.launch.environment import MessagePath, Mpi, mpi_environment


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="env")(env)


def env(
    mpi: Annotated[Mpi, typer.Option(help="The MPI library that the application uses.")],
    path: Annotated[
        MessagePath, typer.Option(help="How messages shall travel.")
    ] = MessagePath.REGION,
    region: Annotated[
        str | None,
        typer.Option(
            metavar="file:PATH|pci:ADDRESS",
            help="The region to use. Without it the provider looks for one: an ivshmem device, "
            "then /run/vicinal/region, then /dev/shm/vicinal-region.",
        ),
    ] = None,
    cma: Annotated[
        bool, typer.Option(help="Cross-memory attach; for the path shared-memory only.")
    ] = True,
) -> None:
    """Print the variables that make an MPI use a path, as `export NAME=VALUE` lines."""
    for name, value in mpi_environment(mpi, path, region, cma=cma).items():
        typer.echo(f"export {name}={shlex.quote(value)}")
