"""`vicinal slurm network`: what Slurm's plugin calls, as root."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.errors import VicinalError
from vicinal.slurm.files import NETWORK_PORT

Network = Annotated[Path, typer.Option(help="A file that stands for this network.")]


def register(commands: typer.Typer) -> None:
    """Add it to `vicinal slurm`."""
    commands.command()(network)


def network(
    job: Annotated[int, typer.Argument(help="The job's number.", min=1)],
    between: Network,
    nodes: Network,
    hosts: Annotated[str, typer.Option(metavar="NAME=ADDRESS,...", help="The job's other hosts.")],
    port: Annotated[int, typer.Option(help="UDP port of jobs' networks.")] = NETWORK_PORT,
) -> None:
    """Join a job's nodes with those on its other hosts. Slurm's plugin calls this as root."""
    from vicinal.slurm.job_network import join

    found = dict(each.partition("=")[::2] for each in hosts.split(",") if each)
    if not found:
        raise VicinalError("no other host was named", "name some with --hosts")
    join(job, between, nodes, found, port)
