"""`vicinal slurm network`: what Slurm's plugin calls, as root."""

from pathlib import Path
from typing import Annotated

from vicinal.base.errors import VicinalError
from vicinal.base.plain_call import Argument, Option
from vicinal.integrations.slurm.defaults import NETWORK_PORT

Network = Annotated[Path, Option("A file that stands for this network.")]


def network(
    job: Annotated[int, Argument("The job's number.", min=1)],
    between: Network,
    nodes: Network,
    hosts: Annotated[str, Option("The job's other hosts.", metavar="NAME=ADDRESS,...")],
    port: Annotated[int, Option("UDP port of jobs' networks.")] = NETWORK_PORT,
) -> None:
    """Join a job's nodes with those on its other hosts. Slurm's plugin calls this as root."""
    from vicinal.integrations.slurm.job_network import join

    found = dict(each.partition("=")[::2] for each in hosts.split(",") if each)
    if not found:
        raise VicinalError("no other host was named", "name some with --hosts")
    join(job, between, nodes, found, port)
