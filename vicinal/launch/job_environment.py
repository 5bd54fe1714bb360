"""The environment of a job's launcher and ranks, wherever they run."""

import os
from collections.abc import Sequence

from vicinal.mpi.environment import MessagePath, Progress, mpi_environment
from vicinal.mpi.heap import preload
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Family, Installation
from vicinal.mpi.placement import Placement

_YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""Variable that has ranks of Open MPI which wait give their core to others."""


def inherited(mpi: Installation, *, found: bool) -> dict[str, str]:
    """This process's environment, in which the loader finds the MPI library.

    `found` says that it does so by itself for the program in question.
    """
    variables = dict(os.environ)
    if not found:
        library = str(mpi.library.parent)
        more = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = f"{library}:{more}" if more else library
    return variables


def job_environment(
    job: Job, mpi: Installation, region: str | None, placements: Sequence[Placement]
) -> dict[str, str]:
    """The variables that have the ranks of a job use its path; `region` as ranks call it."""
    path = MessagePath(job.path)
    core = job.environment.get("VICINAL_NET")
    variables = mpi_environment(mpi, path, region, cma=job.cma, core=core)
    if job.progress is not None:
        variables["VICINAL_PROGRESS"] = Progress(job.progress).value
    neighbours = any(placement.ranks > 1 for placement in placements)
    if mpi.family is Family.MPICH and path is not MessagePath.SHARED_MEMORY and neighbours:
        # MPICH would take its own shared memory between ranks in one node.
        variables["MPIR_CVAR_NOLOCAL"] = "1"
    if (
        mpi.family is Family.OPENMPI
        and path is not MessagePath.REGION
        and job.ranks > len(os.sched_getaffinity(0))
    ):
        # Each daemon knows of its own ranks only, and takes it that they have a core each.
        # On a region the provider sees by itself that cores are shared.
        variables[_YIELD] = os.environ.get(_YIELD, "1")
    return variables


def with_heap(job: Job, program: list[str]) -> list[str]:
    """The program with its allocations in the region; not launchers or shells, for nothing."""
    value = preload({**os.environ, **job.environment})
    return ["/usr/bin/env", f"LD_PRELOAD={value}", *program]
