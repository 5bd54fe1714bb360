"""`vicinal slurm region` and `sweep`: what Slurm's plugin and epilogs call, as root."""

import sys
from pathlib import Path
from typing import Annotated

from vicinal.base.plain_call import Argument, Option
from vicinal.integrations.slurm import job_regions
from vicinal.integrations.slurm.defaults import DEFAULT_REGIONS
from vicinal.region.creation import DEFAULT_SECTION_BYTES

Directory = Annotated[Path, Option("Where the regions of jobs are, in memory and not in /dev/shm.")]


def region(
    job: Annotated[int, Argument("The job's number.", min=1)],
    user: Annotated[int, Option("Number of the user whose job it is.", min=0)],
    directory: Directory = DEFAULT_REGIONS,
    tasks: Annotated[int, Option("Tasks that there is to be room for.", min=1)] = 1,
    members: Annotated[int | None, Option("Member slots; instead of --tasks.")] = None,
    section_size: Annotated[int, Option("Bytes for each member.")] = DEFAULT_SECTION_BYTES,
    heap: Annotated[int, Option("Bytes of each member's heap.")] = 0,
    max_size: Annotated[int | None, Option("Bytes that it may take.")] = None,
) -> None:
    """Make a job's region, unless it is there. Slurm's plugin calls this as root."""
    place = job_regions.make(
        directory,
        job,
        user,
        tasks=tasks,
        members=members,
        section_bytes=section_size,
        heap_bytes=heap,
        max_bytes=max_size,
    )
    sys.stdout.write(f"file:{place}\n")


def sweep(directory: Directory = DEFAULT_REGIONS) -> None:
    """Take away what is left of jobs that Slurm no longer has, such as after a crash.

    Epilogs call this for regions and functions, and see to nodes themselves.
    """
    from vicinal.integrations.slurm.sweeping import sweep as sweep_directory

    for path in sweep_directory(directory):
        sys.stdout.write(f"removed {path}\n")
    from vicinal.integrations.slurm.function_commands import warn
    from vicinal.integrations.slurm.job_functions import JobFunctions

    jobs, notes = JobFunctions(directory).sweep()
    for job in jobs:
        sys.stdout.write(f"took back the SR-IOV functions of job {job}\n")
    warn(notes)
