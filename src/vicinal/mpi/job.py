"""A job's description, its input files, and its result.

Nodes share no writable directory. So the files travel in the ranks' command line, and the ranks
write the files into a directory of each node. In a job over hosts (vicinal/launch/host_job.py) an
agent on each host writes the files before the ranks start.
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import (
    Installation,
    Mpi,
    default_installation,
    installation,
    installation_of,
)
from vicinal.mpi.preloading import DEFAULT_HEAP_BYTES
from vicinal.mpi.program import check_same_mpi, linked_mpi
from vicinal.mpi.variables import check_variables
from vicinal.region import DEFAULT_SECTION_BYTES, RegionState
from vicinal.region.geometry import MEMBERS_MAX

MOST_BYTES = 96 << 10
"""Greatest size of all files of a job: the kernel accepts arguments of up to 128 KiB each."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Job:
    """An MPI program to run on the nodes of a cluster.

    Raises VicinalError if a value is out of bounds or contradicts the path.
    """

    program: Sequence[str]
    """Absolute path of the program, and its arguments."""
    ranks: int
    mpi: Mpi | Installation | str | None = None
    """By default the MPI library that the program is linked with; without one,
    default_installation()."""
    path: MessagePath | str = MessagePath.REGION
    """On the path shared-memory all ranks run in the first node."""
    region: str | None = None
    """Value for VICINAL_REGION, as nodes see it; by default a region is created for the job.

    If there are several regions, the ranks' heaps are in the first.
    """
    hosts: int = 1
    """On the path region: number of hosts that the cluster's nodes form. Each host is a run of
    consecutive nodes with a region of its own. Ranks of different hosts use the nodes' network."""
    members: int | None = None
    """Member slots of the created region; by default enough for the ranks."""
    section_bytes: int = DEFAULT_SECTION_BYTES
    heap: bool = False
    """Whether large allocations of the ranks are placed in the region."""
    heap_bytes: int = DEFAULT_HEAP_BYTES
    """With `heap`: bytes for each member of a region that is created for the job."""
    progress: Progress | str | None = None
    """On the path region: what waiting ranks do; by default the environment decides."""
    pin: bool = False
    """Whether each rank gets a core of its own, while there are enough cores."""
    cma: bool = True
    """On the path shared-memory: whether ranks may copy directly from each other's memory."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the ranks, which override inherited variables."""
    directory: Path | None = None
    """Working directory; by default this process's."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by file name. With files, ranks run in a directory of their own node that holds the
    files."""
    label: str = ""
    """Name of the job in messages and tables; at most 64 bytes."""

    def __post_init__(self) -> None:
        check_variables({**os.environ, **self.environment})
        if not self.program:
            raise VicinalError("the job has no program", "name a program")
        if self.ranks < 1:
            raise VicinalError(f"a job of {self.ranks} ranks cannot run", "ask for at least 1")
        if self.ranks > MEMBERS_MAX and MessagePath(self.path) is MessagePath.REGION:
            raise VicinalError(
                f"a job of {self.ranks} ranks has no room in a region, which has at most "
                f"{MEMBERS_MAX} member slots",
                f"ask for at most {MEMBERS_MAX}, or use --path network",
            )
        if self.hosts != 1 and (
            self.hosts < 1
            or self.region is not None
            or MessagePath(self.path) is not MessagePath.REGION
        ):
            raise VicinalError(
                f"a job over {self.hosts} hosts needs the path region, and a new region for each "
                "host",
                "leave out the region, and ask for at least 1 host",
            )
        if self.progress is not None and MessagePath(self.path) is not MessagePath.REGION:
            raise VicinalError(
                f"the path {MessagePath(self.path).value} has no choice of progress",
                "leave out --progress, or use --path region",
            )
        if self.heap and MessagePath(self.path) is not MessagePath.REGION:
            raise VicinalError(
                f"the path {MessagePath(self.path).value} has no region for a heap",
                "leave out --heap, or use --path region",
            )

    def resolved_mpi(self) -> tuple[Installation, bool]:
        """Return the MPI to use, and whether the program's loader finds that MPI's library by
        itself.

        Raises VicinalError if that MPI is not installed, or if the program is linked with another
        MPI.
        """
        linked = linked_mpi(Path(self.program[0]))
        if self.mpi is not None:
            chosen = self.mpi if isinstance(self.mpi, Installation) else installation(self.mpi)
            check_same_mpi(self.program, chosen)
        elif linked is None:
            chosen = default_installation()
            check_same_mpi(self.program, chosen)
        else:
            owner = installation_of(linked[1]) if linked[1] is not None else None
            chosen = owner or installation(linked[0])
        if linked is None:
            return chosen, True
        return chosen, linked[1] is not None and chosen.is_library(linked[1])


@dataclass(frozen=True)
class CompletedJob:
    """A job that ended by itself."""

    returncode: int
    """The status in a shell's convention: the program's own, or 128 and the number of a signal."""
    stdout: str
    stderr: str
    seconds: float
    """Wall-clock time from the start of the launcher to its end."""
    region: RegionState | None
    """The region at the end of the job, the first host's if there are several; None on other
    paths."""
    regions: tuple[RegionState, ...] = ()
    """The regions of all hosts, in order."""


def check_names(files: Iterable[str]) -> None:
    """Raise VicinalError for a name that a job's file cannot have."""
    for name in files:
        if not _NAME.fullmatch(name):
            raise VicinalError(
                f"{name!r} cannot be the name of a job's file", "use letters and digits"
            )


def in_directory(directory: str, program: Sequence[str]) -> list[str]:
    """Return a command that runs the program in an existing directory."""
    return ["/bin/sh", "-c", f'cd {directory} && exec "$@"', "sh", *program]


def with_files(files: Mapping[str, str], directory: str, program: Sequence[str]) -> list[str]:
    """Return a command that creates `directory` with these files (text by name) and runs the
    program there.

    Raises VicinalError for a name that a file cannot have, and for more than MOST_BYTES of files.
    """
    if not files:
        return list(program)
    check_names(files)
    script = f"mkdir -p {directory} && cd {directory}"
    for name, text in files.items():
        encoded = base64.b64encode(text.encode()).decode()
        # Written under a temporary name first, because the ranks of a node all write the same file.
        script += f" && printf %s {encoded} | base64 -d >{name}.$$ && mv {name}.$$ {name}"
    if len(script) > MOST_BYTES:
        raise VicinalError(
            f"the job's files are {len(script) - MOST_BYTES} bytes too long for a command line",
            "let the program read the files from a directory that all nodes see",
        )
    return ["/bin/sh", "-c", f'{script} && exec "$@"', "sh", *program]
