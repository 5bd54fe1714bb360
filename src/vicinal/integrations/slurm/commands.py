"""`vicinal slurm`: the option --vicinal of srun, sbatch and salloc."""

import os
import shutil
import socket
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.plain_call import for_typer
from vicinal.base.sizes import parse_size
from vicinal.base.waiting import told
from vicinal.integrations.slurm import plugin_commands
from vicinal.integrations.slurm.defaults import DEFAULT_MAX_SIZE, DEFAULT_REGIONS, NETWORK_PORT
from vicinal.integrations.slurm.files import (
    HOST_NETWORK,
    Files,
    Installed,
    find_files,
    find_plugin,
    include_text,
    variables_text,
)
from vicinal.integrations.slurm.installation import Wanted
from vicinal.integrations.slurm.installation import install as install_files
from vicinal.integrations.slurm.installation import remove as remove_files
from vicinal.integrations.slurm.job_vlans import parse_vlans
from vicinal.mpi.libraries import Mpi

SlurmConf = Annotated[
    Path | None,
    typer.Option(help="Slurm's slurm.conf. Default: SLURM_CONF, or /etc/slurm/slurm.conf."),
]
_DIRECTORY = typer.Option(help="Directory of jobs' regions: in memory, not below /dev/shm.")
Mpis = Annotated[
    list[Mpi] | None,
    typer.Option(
        "--mpi", help="MPI library of the jobs; repeat for more. Default: MPICH and Open MPI."
    ),
]
Python = Annotated[
    Path | None,
    typer.Option(
        help="Python interpreter that creates nodes; every user must be able to run it. Default:"
        " the running interpreter."
    ),
]
_MAX_SIZE = typer.Option(metavar="SIZE", help="The largest region of a job on a host.")
WithVfs = Annotated[
    bool,
    typer.Option("--vfs", help="Let jobs request SR-IOV VFs of their hosts with --gres=vf:1."),
]
Vlans = Annotated[
    str | None,
    typer.Option(
        metavar="FIRST-LAST",
        help="VLANs of the VFs' network; the nodes of each job get one of their own.",
    ),
]
Node = Annotated[
    str | None, typer.Option(help="Slurm's name of this host. Default: the host name.")
]
_NETWORK_PORT = typer.Option(
    help="UDP port of the networks that connect the nodes of a job over several hosts.",
    min=1,
    max=65535,
)
HostNetwork = Annotated[
    bool,
    typer.Option(
        "--host-network", help="Let nodes of a job on several hosts use the hosts' network instead."
    ),
]

commands = typer.Typer(help="Manage Slurm's option --vicinal, which gives each job a region.")


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="slurm")


@commands.command()
def install(
    slurm_conf: SlurmConf = None,
    directory: Annotated[Path, _DIRECTORY] = DEFAULT_REGIONS,
    mpi: Mpis = None,
    max_size: Annotated[str, _MAX_SIZE] = DEFAULT_MAX_SIZE,
    python: Python = None,
    with_vfs: WithVfs = False,
    vlans: Vlans = None,
    node: Node = None,
    network_port: Annotated[int, _NETWORK_PORT] = NETWORK_PORT,
    host_network: HostNetwork = False,
) -> None:
    """Install the option --vicinal for Slurm on this host. Use the same options on every host."""
    files = find_files(slurm_conf)
    network = HOST_NETWORK if host_network else str(network_port)
    wanted, *_ = _wanted(files, directory, mpi, max_size, python, with_vfs, vlans, network)
    with told("installing the option for Slurm on this host"):
        changed = install_files(files, wanted)
    for path in changed:
        typer.echo(f"wrote {path}")
    if not changed:
        typer.echo("everything is installed already")
    if changed:
        typer.echo("restart slurmd, if this host has one: its epilog removes the regions of jobs")
    if with_vfs:
        from vicinal.integrations.slurm import gres

        for line in gres.lines(_node(node), gres.counted(), files.slurm_conf):
            typer.echo(line)
    typer.echo("`vicinal slurm check` lists what remains to do")


@commands.command()
def check(
    slurm_conf: SlurmConf = None,
    directory: Annotated[Path | None, _DIRECTORY] = None,
    mpi: Mpis = None,
    max_size: Annotated[str | None, _MAX_SIZE] = None,
    python: Python = None,
    with_vfs: WithVfs = False,
    vlans: Vlans = None,
    node: Node = None,
    network_port: Annotated[int | None, _NETWORK_PORT] = None,
    host_network: HostNetwork = False,
) -> None:
    """Check the option on this host: what is installed, what is missing, and the remedy.

    Without options, uses the options of `vicinal slurm install`.
    """
    from vicinal.integrations.slurm.checks import check as look
    from vicinal.integrations.slurm.checks import check_network

    files = find_files(slurm_conf)
    installed = Installed.read(files)
    said = installed.arguments
    directory = directory or Path(said.get("directory", DEFAULT_REGIONS))
    with_vfs = with_vfs or "vfs" in said
    network = (
        HOST_NETWORK if host_network else str(network_port or said.get("network", NETWORK_PORT))
    )
    wanted, plugin, command, interpreter = _wanted(
        files,
        directory,
        mpi or list(installed.mpis),
        max_size or said.get("max_size", DEFAULT_MAX_SIZE),
        python or (Path(said["python"]) if "python" in said else None),
        with_vfs,
        vlans or said.get("vlans"),
        network,
    )
    good = True
    looked = look(
        files,
        wanted,
        plugin=plugin,
        command=command,
        python=interpreter,
        regions=directory,
    )
    if network != HOST_NETWORK:
        looked = chain(looked, check_network(files.slurm_conf))
    if with_vfs:
        from vicinal.integrations.slurm import gres

        looked = chain(looked, gres.check(_node(node), gres.counted(), files.slurm_conf))
    with told("checking Slurm on this host") as word:
        show = word.before(typer.echo)
        for found in looked:
            show(found.line)
            good = good and (found.good or not found.needed)
    if not good:
        raise typer.Exit(1)


@commands.command()
def remove(slurm_conf: SlurmConf = None) -> None:
    """Remove the option from Slurm on this host. Call it only while no job uses the option."""
    changed = remove_files(find_files(slurm_conf))
    for path in changed:
        typer.echo(f"removed from {path}" if path.exists() else f"removed {path}")
    if not changed:
        typer.echo("nothing was installed")


for _plain in (
    *(plugin_commands.region, plugin_commands.sweep, plugin_commands.network),
    *(plugin_commands.vfs, plugin_commands.grant, plugin_commands.release),
):
    commands.command()(for_typer(_plain))


def _wanted(
    files: Files,
    directory: Path,
    mpi: list[Mpi] | None,
    max_size: str,
    python: Path | None,
    vfs: bool,
    vlans: str | None,
    network: str,
) -> tuple[Wanted, Path, Path, Path]:
    """The files' wanted contents, and the paths of the plugin, the command and the interpreter."""
    plugin, command = find_plugin(), _own_command()
    most = parse_size(max_size)
    if vlans is not None and not vfs:
        raise VicinalError("--vlans applies only to VFs", "add --vfs")
    python = python or Path(sys.executable)
    include = include_text(
        plugin,
        command,
        python,
        directory,
        files.variables,
        most,
        vfs=vfs,
        vlans=None if vlans is None else parse_vlans(vlans),
        network=network,
    )
    return Wanted(include, variables_text(mpi or [Mpi.MPICH, Mpi.OPENMPI])), plugin, command, python


def _node(name: str | None) -> str:
    return name or socket.gethostname().partition(".")[0]


def _own_command() -> Path:
    """The absolute path of the program `vicinal`, for Slurm's daemons. VicinalError if it is not
    found.
    """
    for name in (sys.argv[0], str(Path(sys.executable).parent / "vicinal")):
        path = Path(name)
        if path.is_absolute() and path.name == "vicinal" and os.access(path, os.X_OK):
            return path
    found = shutil.which("vicinal")
    if found is None:
        raise VicinalError("the program `vicinal` was not found", "add its directory to PATH")
    return Path(found).absolute()
