"""`vicinal opennebula`: put the driver among OpenNebula's scripts, check it, remove it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vicinal.errors import VicinalError
from vicinal.opennebula.installation import (
    ONED_CONF,
    REMOTES,
    Installation,
    check_configuration,
)

Remotes = Annotated[
    Path,
    typer.Option(metavar="DIRECTORY", help="OpenNebula's scripts, on its front-end."),
]
Python = Annotated[
    Path,
    typer.Option(
        metavar="PATH",
        help="The Python that has Vicinal, at the same place on every host; this one by itself.",
    ),
]

commands = typer.Typer(
    help="Give the VMs of OpenNebula shared regions: a variant of its KVM driver."
)


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="opennebula")


@commands.command()
def install(remotes: Remotes = REMOTES, python: Python = Path(sys.executable)) -> None:
    """Put the driver vicinal beside OpenNebula's driver kvm; again after updates of either."""
    done = _installation(remotes, python).install()
    for line in done:
        typer.echo(line)
    if not done:
        typer.echo("all of it is there")
    typer.echo("\nOpenNebula's oned.conf needs these lines, and a restart of opennebula:\n")
    typer.echo(ONED_CONF)
    typer.echo(
        "Then, as oneadmin: `onehost sync --force`, and `onehost create NODE -i kvm -v vicinal`."
    )


@commands.command()
def check(remotes: Remotes = REMOTES, python: Python = Path(sys.executable)) -> None:
    """Check that the driver is there and as it has to be; exit with 1 if it is not."""
    faults = list(_installation(remotes, python).faults())
    for fault in faults:
        typer.echo(f"vicinal: error: {fault}: run `vicinal opennebula install`", err=True)
    if missing := check_configuration():
        typer.echo(f"vicinal: warning: {missing}: see `vicinal opennebula install`", err=True)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"{remotes / 'vmm/vicinal'} is as it has to be")


@commands.command()
def remove(remotes: Remotes = REMOTES) -> None:
    """Take the driver away; no host of OpenNebula's may use it any more."""
    for line in _installation(remotes, Path(sys.executable)).remove():
        typer.echo(line)


def _installation(remotes: Path, python: Path) -> Installation:
    if not python.is_absolute() or "'" in str(python) or "\n" in str(python):
        raise VicinalError(f"{python} is no place that a script can name", "give a whole path")
    return Installation(remotes.absolute(), python)
