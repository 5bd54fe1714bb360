"""`vicinal slurm region`, `sweep`, `vfs`, `grant`, `release` and `network`.

Slurm's plugin and epilogs call these commands as root. A job waits for each of them.
"""

import sys
from pathlib import Path
from typing import Annotated

from vicinal.base.errors import VicinalError
from vicinal.base.plain_call import Argument, Option
from vicinal.integrations.slurm import job_regions
from vicinal.integrations.slurm.defaults import DEFAULT_REGIONS, GRES, NETWORK_PORT
from vicinal.region.creation import DEFAULT_SECTION_BYTES

MemoryDirectory = Annotated[
    Path, Option("Directory of jobs' regions: in memory, not below /dev/shm.")
]
Network = Annotated[Path, Option("File of this network namespace.")]
TASKS, NODES = "tasks", "nodes"

Job = Annotated[int, Argument("The job's number.", min=1)]
Directory = Annotated[Path, Option("Directory of jobs' regions.")]


def region(
    job: Annotated[int, Argument("The job's number.", min=1)],
    user: Annotated[int, Option("The number of the job's user.", min=0)],
    directory: MemoryDirectory = DEFAULT_REGIONS,
    tasks: Annotated[int, Option("Number of tasks that must fit.", min=1)] = 1,
    members: Annotated[int | None, Option("Member slots; replaces --tasks.")] = None,
    section_size: Annotated[int, Option("Bytes for each member.")] = DEFAULT_SECTION_BYTES,
    heap: Annotated[int | None, Option("Bytes of each member's heap.")] = None,
    max_size: Annotated[int | None, Option("Bytes that the region may take.")] = None,
) -> None:
    """Create a job's region if it does not exist. Slurm's plugin calls this as root."""
    path = job_regions.make(
        directory,
        job,
        user,
        tasks=tasks,
        members=members,
        section_bytes=section_size,
        heap_bytes=heap,
        max_bytes=max_size,
    )
    sys.stdout.write(f"file:{path}\n")


def sweep(directory: MemoryDirectory = DEFAULT_REGIONS) -> None:
    """Remove what is left of jobs that Slurm no longer has, for example after a crash.

    Epilogs call this for regions and VFs. Epilogs end the supervisors of nodes themselves.
    """
    from vicinal.integrations.slurm.sweeping import sweep as sweep_directory

    for path in sweep_directory(directory):
        sys.stdout.write(f"removed {path}\n")
    from vicinal.integrations.slurm.job_vfs import JobVfs

    jobs, notes = JobVfs(directory).sweep()
    for job in jobs:
        sys.stdout.write(f"released the SR-IOV VFs of job {job}\n")
    warn(notes)


def vfs(
    job: Job,
    gres: Annotated[
        str, Option("The job's GRES on this host, as Slurm lists it.", metavar="WORDS")
    ],
    name: Annotated[str, Option("The GRES of the VFs.")] = GRES,
    purpose: Annotated[str, Option(f"Users of the VFs: the host's {TASKS}, or {NODES}.")] = TASKS,
    vlans: Annotated[
        str | None, Option("VLANs; the nodes of each job get one.", metavar="FIRST-LAST")
    ] = None,
    directory: Directory = DEFAULT_REGIONS,
) -> None:
    """Configure a job's SR-IOV VFs, if needed. Slurm's plugin calls this as root."""
    from vicinal.integrations.slurm.job_vfs import JobVfs, parse_gres
    from vicinal.integrations.slurm.job_vlans import parse_vlans

    if purpose not in (TASKS, NODES):
        raise VicinalError(f"{purpose!r} cannot have VFs", f"name {TASKS} or {NODES}")
    JobVfs(directory).give(
        job,
        parse_gres(gres, name),
        for_nodes=purpose == NODES,
        vlans=None if vlans is None else parse_vlans(vlans),
        gres=name,
    )


def grant(
    job: Job,
    user: Annotated[int, Option("The number of the job's user.", min=0)],
    directory: Directory = DEFAULT_REGIONS,
) -> None:
    """Let a job's user open its VFs by VFIO, for virtual machines.

    Slurm's plugin calls this as root.
    """
    from vicinal.integrations.slurm.job_vfs import JobVfs

    JobVfs(directory).grant(job, user)


def release(job: Job, directory: Directory = DEFAULT_REGIONS) -> None:
    """Release a job's SR-IOV VFs. Epilogs call this as root."""
    from vicinal.integrations.slurm.job_vfs import JobVfs

    warn(JobVfs(directory).release(job))


def warn(notes: list[str]) -> None:
    """Write a warning for each setting that could not be restored."""
    for note in notes:
        sys.stderr.write(f"vicinal: warning: {note}\n")


def network(
    job: Annotated[int, Argument("The job's number.", min=1)],
    between: Network,
    nodes: Network,
    hosts: Annotated[str, Option("The job's other hosts.", metavar="NAME=ADDRESS,...")],
    port: Annotated[int, Option("UDP port of jobs' networks.")] = NETWORK_PORT,
) -> None:
    """Connect a job's nodes to its nodes on other hosts. Slurm's plugin calls this as root."""
    from vicinal.integrations.slurm.job_network import join

    found = dict(each.partition("=")[::2] for each in hosts.split(",") if each)
    if not found:
        raise VicinalError("no other host was named", "name the job's other hosts with --hosts")
    join(job, between, nodes, found, port)
