"""`vicinal opennebula`: install the driver among OpenNebula's scripts, check it, remove it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.waiting import told
from vicinal.integrations.opennebula.installation import (
    ONED_CONF,
    REMOTES,
    Installation,
    check_configuration,
)

Remotes = Annotated[
    Path,
    typer.Option(metavar="DIRECTORY", help="The folder of OpenNebula's scripts on its front-end."),
]
Python = Annotated[
    Path,
    typer.Option(
        metavar="PATH",
        help="The Python interpreter that has Vicinal, at the same path on every host; the running"
        " interpreter by default.",
    ),
]
Hooks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DRIVER",
        help="A network driver of OpenNebula, such as 802.1Q, that gets hooks. The hooks set rates"
        " and link states of SR-IOV VFs in its networks. Repeat for more drivers.",
    ),
]

commands = typer.Typer(help="Give OpenNebula's VMs shared regions, by a variant of its KVM driver.")


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="opennebula")


@commands.command()
def install(
    remotes: Remotes = REMOTES, python: Python = Path(sys.executable), hooks: Hooks = None
) -> None:
    """Install the driver vicinal beside OpenNebula's driver kvm. Repeat after updates of either."""
    with told("installing the driver beside OpenNebula's"):
        done = _installation(remotes, python, hooks).install()
    for line in done:
        typer.echo(line)
    if not done:
        typer.echo("everything is installed already")
    typer.echo("\nOpenNebula's oned.conf needs these lines, and a restart of opennebula:\n")
    typer.echo(ONED_CONF)
    typer.echo(
        "Then, as oneadmin: `onehost sync --force`, and `onehost create NODE -i kvm -v vicinal`."
    )


@commands.command()
def check(
    remotes: Remotes = REMOTES, python: Python = Path(sys.executable), hooks: Hooks = None
) -> None:
    """Check that all files of the driver are installed and current; exit with 1 if not."""
    with told("checking OpenNebula's drivers"):
        faults = list(_installation(remotes, python, hooks).faults())
    for fault in faults:
        typer.echo(f"vicinal: error: {fault}: run `vicinal opennebula install`", err=True)
    if missing := check_configuration():
        typer.echo(f"vicinal: warning: {missing}: see `vicinal opennebula install`", err=True)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"{remotes / 'vmm/vicinal'} is complete and current")


@commands.command()
def remove(remotes: Remotes = REMOTES, hooks: Hooks = None) -> None:
    """Remove the driver, or only hooks. No host of OpenNebula may use the driver any more."""
    with told("removing the driver"):
        done = list(_installation(remotes, Path(sys.executable), hooks).remove())
    for line in done:
        typer.echo(line)


def _installation(remotes: Path, python: Path, hooks: list[str] | None) -> Installation:
    if not python.is_absolute() or "'" in str(python) or "\n" in str(python):
        raise VicinalError(
            f"a script cannot name the interpreter {str(python)!r}",
            "give an absolute path without quotes and line breaks",
        )
    return Installation(remotes.absolute(), python, tuple(hooks or ()))
