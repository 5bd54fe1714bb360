"""`vicinal slurm functions`, `lend` and `release`: what Slurm's plugin calls, as root."""

import sys
from pathlib import Path
from typing import Annotated

from vicinal.base.errors import VicinalError
from vicinal.base.plain_call import Argument, Option
from vicinal.integrations.slurm.defaults import DEFAULT_REGIONS, GRES

TASKS, NODES = "tasks", "nodes"

Job = Annotated[int, Argument("The job's number.", min=1)]
Directory = Annotated[Path, Option("Where the regions of jobs are.")]


def functions(
    job: Job,
    gres: Annotated[str, Option("What Slurm says that the job has on this host.", metavar="WORDS")],
    name: Annotated[str, Option("The GRES that is meant.")] = GRES,
    purpose: Annotated[
        str, Option(f"What is to have them: {TASKS} of the host's, or {NODES}.")
    ] = TASKS,
    vlans: Annotated[
        str | None, Option("VLANs of which each job's nodes have one.", metavar="FIRST-LAST")
    ] = None,
    directory: Directory = DEFAULT_REGIONS,
) -> None:
    """Set up a job's SR-IOV functions, unless they are. Slurm's plugin calls this as root."""
    from vicinal.integrations.slurm.job_functions import JobFunctions, parse_gres
    from vicinal.integrations.slurm.job_vlans import parse_vlans

    if purpose not in (TASKS, NODES):
        raise VicinalError(f"{purpose!r} cannot have functions", f"name {TASKS} or {NODES}")
    JobFunctions(directory).give(
        job,
        parse_gres(gres, name),
        for_nodes=purpose == NODES,
        vlans=None if vlans is None else parse_vlans(vlans),
        gres=name,
    )


def lend(
    job: Job,
    user: Annotated[int, Option("The number of the job's user.", min=0)],
    directory: Directory = DEFAULT_REGIONS,
) -> None:
    """Let a job's user open its functions by VFIO, for virtual machines. Slurm's plugin calls this.

    It does so as root.
    """
    from vicinal.integrations.slurm.job_functions import JobFunctions

    JobFunctions(directory).lend(job, user)


def release(job: Job, directory: Directory = DEFAULT_REGIONS) -> None:
    """Take a job's SR-IOV functions back. Epilogs call this as root."""
    from vicinal.integrations.slurm.job_functions import JobFunctions

    warn(JobFunctions(directory).release(job))


def warn(notes: list[str]) -> None:
    """Say what could not be put back."""
    for note in notes:
        sys.stderr.write(f"vicinal: warning: {note}\n")
