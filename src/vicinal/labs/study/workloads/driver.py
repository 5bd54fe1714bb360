"""What a driver of a workload is: it knows one family of programs, their output and their needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.result.samples import Series
from vicinal.mpi.libraries import Mpi


@dataclass(frozen=True)
class Tools:
    """Programs that the user has and said where, by what they are: `osu`, `imb`, `npb`, ..."""

    paths: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """The command lines that start a workload, and what they are given."""

    command: Sequence[str]
    """Absolute path and arguments; a launcher of the environment's MPI starts it on all ranks."""
    ranks: int
    server: Sequence[str] = ()
    """Where it is no MPI program: this is started on the first node and `command`, in which
    `{server}` stands for that node's address, on the last one; `ranks` is 2 then."""
    variables: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    files: dict[str, str] = field(default_factory=dict)
    """Text by name: input that is to be in the working directory."""


@dataclass(frozen=True)
class Measured:
    """The samples and figures that one launch printed."""

    series: Sequence[Series] = ()
    figures: Sequence[Figure] = ()
    facts: dict[str, object] = field(default_factory=dict)
    """What the program said of itself: its version, and what ProgramFact names: its clock, what
    recording cost. They become a trial's Condition.PROGRAM."""
    work: float | None = None
    """How much it did, in messages or bytes, where that is more than the series have."""


class Driver(Protocol):
    """A family of programs that workloads name: how they are started and their output is read."""

    name: str

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Why the workload cannot run here, and what to install; None where it can."""

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """What to start. Raises VicinalError where the workload's options make no sense."""

    def read(self, workload: Workload, stdout: str) -> Measured:
        """What it printed. Raises VicinalError where that is not whole or makes no sense."""
