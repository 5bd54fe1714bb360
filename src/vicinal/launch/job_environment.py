"""The environment of a job's launcher and ranks, for all kinds of nodes."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from vicinal.mpi.environment import NO_LOCAL, MessagePath, Progress, mpi_environment
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Family, Installation
from vicinal.mpi.placement import Placement
from vicinal.mpi.preloading import preloaded_libraries, preloading

_YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""Variable that makes waiting ranks of Open MPI give their core to others."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PASSED = "VICINAL_PASSED_"
"""Prefix of the names under which variables pass shells."""


def inherited(mpi: Installation, *, found: bool) -> dict[str, str]:
    """This process's environment, completed so that the loader finds the MPI library.

    `found` says that the loader finds the library for the program without a change.
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
    """The variables that make the ranks of a job use its path; `region` is the address in the
    ranks' view.
    """
    path = MessagePath(job.path)
    core = job.environment.get("VICINAL_NET")
    variables = mpi_environment(mpi, path, region, cma=job.cma, core=core)
    if job.progress is not None:
        variables["VICINAL_PROGRESS"] = Progress(job.progress).value
    neighbours = any(placement.ranks > 1 for placement in placements)
    if mpi.family is Family.MPICH and path is not MessagePath.SHARED_MEMORY and neighbours:
        # Otherwise MPICH uses its own shared memory between ranks in one node.
        variables[NO_LOCAL] = os.environ.get(NO_LOCAL, "1")
    if (
        mpi.family is Family.OPENMPI
        and path is not MessagePath.REGION
        and job.ranks > len(os.sched_getaffinity(0))
    ):
        # Each daemon knows only its own ranks, and assumes a core for each of them.
        # With a region the provider detects by itself that cores are shared.
        variables[_YIELD] = os.environ.get(_YIELD, "1")
    return variables


def past_shells(
    environment: Mapping[str, str], program: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The program, and the environment for its launcher, such that the program gets all variables.

    Shells stand between this process and a rank. Some, such as dash, drop variables whose names are
    not identifiers, for example of environment modules or of functions that bash exports. Such
    variables pass under other names, and the last shell restores their own names. The command line
    does not carry them, because other users may read it.
    """
    odd = [name for name in environment if name and not _IDENTIFIER.fullmatch(name)]
    if not odd:
        return list(program), dict(environment)
    passed = {f"{_PASSED}{number}": name for number, name in enumerate(odd)}
    taken_away = " ".join(f"-u {alias}" for alias in passed)
    given = " ".join(f'{shlex.quote(name)}="${alias}"' for alias, name in passed.items())
    script = f'exec /usr/bin/env {taken_away} -- {given} "$@"'
    kept = {name: value for name, value in environment.items() if name not in odd}
    return (
        ["/bin/sh", "-c", script, "sh", *program],
        kept | {alias: environment[name] for alias, name in passed.items()},
    )


def with_preloads(job: Job, mpi: Installation, program: Sequence[str]) -> list[str]:
    """The program, preceded by the libraries to preload. Launchers and shells do not preload them.

    The libraries serve allocations in the region, collectives, and the MPI library's accumulates.
    """
    environment = {**os.environ, **job.environment}
    libraries = preloaded_libraries(mpi, MessagePath(job.path), environment, heap=job.heap)
    if not libraries:
        return list(program)
    return [
        "/usr/bin/env",
        f"LD_PRELOAD={preloading(libraries, environment)}",
        *program,
    ]
