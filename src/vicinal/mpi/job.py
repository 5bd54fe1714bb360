"""What a job is, how the ranks get its input files, and what is left of a job that has ended.

Nodes share no directory that could be written to. So the files go with the ranks' command line, and
the ranks themselves put them into a directory of each node. Over hosts (vicinal/launch/host_job.py)
an agent on each host writes the files before the ranks start.
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Installation, Mpi, installation, installation_of
from vicinal.mpi.preloading import DEFAULT_HEAP_BYTES
from vicinal.mpi.program import check_same_mpi, linked_mpi
from vicinal.mpi.variables import check_variables
from vicinal.region import DEFAULT_SECTION_BYTES, RegionState
from vicinal.region.geometry import MEMBERS_MAX

MOST_BYTES = 96 << 10
"""Of all files of a job: the kernel takes arguments of up to 128 KiB each."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Job:
    """An MPI program to run on the nodes of a cluster."""

    program: Sequence[str]
    """Absolute path of the program, and its arguments."""
    ranks: int
    mpi: Mpi | Installation | str | None = None
    """By default the one that the program is linked with, and else MPICH."""
    path: MessagePath | str = MessagePath.REGION
    """On the path shared-memory all ranks run in the first node."""
    region: str | None = None
    """Value for VICINAL_REGION, as nodes see it; by default a region is made for the job.

    Of several that all ranks are in, the first is that of their heaps.
    """
    hosts: int = 1
    """On the path region: the cluster's nodes are so many hosts, each with some of them in a row
    and a region of its own. Ranks of different hosts reach each other over the nodes' network."""
    members: int | None = None
    """Member slots of that region; by default enough for the ranks."""
    section_bytes: int = DEFAULT_SECTION_BYTES
    heap: bool = False
    """Whether large allocations of the ranks lie in the region."""
    heap_bytes: int = DEFAULT_HEAP_BYTES
    """With `heap`: bytes of each member of a region that is made for the job."""
    progress: Progress | str | None = None
    """On the path region: what ranks do that wait; by default what the environment says."""
    pin: bool = False
    """Whether each rank gets a core of its own, as far as there are enough."""
    cma: bool = True
    """On the path shared-memory: whether ranks may copy straight out of each other."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the ranks beside the inherited ones, which they override."""
    directory: Path | None = None
    """Working directory; by default this process's."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by name; with any, ranks run in a directory of their node's own that has them."""
    label: str = ""
    """Name of the job, for people; at most 64 bytes."""

    def __post_init__(self) -> None:
        check_variables({**os.environ, **self.environment})
        if not self.program:
            raise VicinalError("the job has no program", "name one")
        if self.ranks < 1:
            raise VicinalError(f"a job of {self.ranks} ranks cannot run", "ask for at least 1")
        if self.ranks > MEMBERS_MAX and MessagePath(self.path) is MessagePath.REGION:
            raise VicinalError(
                f"a job of {self.ranks} ranks has no room in a region: it has up to {MEMBERS_MAX} "
                "member slots",
                f"ask for at most {MEMBERS_MAX}, or use --path network",
            )
        if self.hosts != 1 and (
            self.hosts < 1
            or self.region is not None
            or MessagePath(self.path) is not MessagePath.REGION
        ):
            raise VicinalError(
                f"a job over {self.hosts} hosts needs the path region, and a region made for each",
                "leave out the region, and ask for at least 1 host",
            )
        if self.progress is not None and MessagePath(self.path) is not MessagePath.REGION:
            raise VicinalError(
                f"the path {MessagePath(self.path).value} makes its progress by itself",
                "leave out --progress, or use --path region",
            )
        if self.heap and MessagePath(self.path) is not MessagePath.REGION:
            raise VicinalError(
                f"the path {MessagePath(self.path).value} has no region for a heap",
                "leave out --heap, or use --path region",
            )

    def resolved_mpi(self) -> tuple[Installation, bool]:
        """The MPI to use, and whether the program's loader finds its library by itself.

        Raises VicinalError where that MPI is not installed, or the program has another in it.
        """
        linked = linked_mpi(Path(self.program[0]))
        if self.mpi is not None:
            chosen = self.mpi if isinstance(self.mpi, Installation) else installation(self.mpi)
            check_same_mpi(self.program, chosen)
        elif linked is None:
            chosen = installation(Mpi.MPICH)
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
    """As a shell would give it: the program's, or 128 and the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float
    """Wall-clock time from starting the launcher to its end."""
    region: RegionState | None
    """The region as the job left it, the first host's if there are several; None on other paths."""
    regions: tuple[RegionState, ...] = ()
    """Those of all hosts, in order."""


def check_names(files: Iterable[str]) -> None:
    """Raise VicinalError for names that a job's files cannot have."""
    for name in files:
        if not _NAME.fullmatch(name):
            raise VicinalError(f"{name!r} is no name of a job's file", "use letters and digits")


def in_directory(directory: str, program: Sequence[str]) -> list[str]:
    """The program, run in a directory that is there."""
    return ["/bin/sh", "-c", f'cd {directory} && exec "$@"', "sh", *program]


def with_files(files: Mapping[str, str], directory: str, program: Sequence[str]) -> list[str]:
    """The program, run in `directory`, which has these files: text by name.

    Raises VicinalError for names that are none, and for more text than there is room for.
    """
    if not files:
        return list(program)
    check_names(files)
    script = f"mkdir -p {directory} && cd {directory}"
    for name, text in files.items():
        encoded = base64.b64encode(text.encode()).decode()
        # Under a name of its own first: the ranks of a node all write the same.
        script += f" && printf %s {encoded} | base64 -d >{name}.$$ && mv {name}.$$ {name}"
    if len(script) > MOST_BYTES:
        raise VicinalError(
            f"the files of a job have {len(script) - MOST_BYTES} bytes too many for it",
            "let the program read them from a directory that all nodes see",
        )
    return ["/bin/sh", "-c", f'{script} && exec "$@"', "sh", *program]
