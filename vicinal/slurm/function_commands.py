"""`vicinal slurm functions` and `release`: what Slurm's plugin calls, as root."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.slurm.files import DEFAULT_REGIONS, GRES

Job = Annotated[int, typer.Argument(help="The job's number.", min=1)]
Directory = Annotated[Path, typer.Option(help="Where the regions of jobs are.")]


def register(commands: typer.Typer) -> None:
    """Add them to `vicinal slurm`."""
    commands.command()(functions)
    commands.command()(release)


def functions(
    job: Job,
    gres: Annotated[
        str, typer.Option(metavar="WORDS", help="What Slurm says that the job has on this host.")
    ],
    name: Annotated[str, typer.Option(help="The GRES that is meant.")] = GRES,
    directory: Directory = DEFAULT_REGIONS,
) -> None:
    """Set up a job's SR-IOV functions, unless they are. Slurm's plugin calls this as root."""
    from vicinal.slurm.job_functions import JobFunctions, parse_gres

    JobFunctions(directory).give(job, parse_gres(gres, name))


def release(job: Job, directory: Directory = DEFAULT_REGIONS) -> None:
    """Take a job's SR-IOV functions back. Epilogs call this as root."""
    from vicinal.slurm.job_functions import JobFunctions

    warn(JobFunctions(directory).release(job))


def warn(notes: list[str]) -> None:
    """Say what could not be put back."""
    for note in notes:
        typer.echo(f"vicinal: warning: {note}", err=True)
