"""The protocol of a driver, which knows one family of programs, their output and their needs."""

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
    """Paths of programs that the user named, by tool: `osu`, `imb`, `npb`, ..."""

    paths: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """The command lines that start a workload, with their input."""

    command: Sequence[str]
    """Absolute path and arguments. A launcher of the environment's MPI library starts it on all
    ranks."""
    ranks: int
    server: Sequence[str] = ()
    """Only for programs that are not MPI: starts on the first node. `command` then starts on the
    last node, with `{server}` replaced by the first node's address, and `ranks` is 2."""
    variables: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    files: dict[str, str] = field(default_factory=dict)
    """Input files for the working directory, text by name."""


@dataclass(frozen=True)
class Measured:
    """The samples and figures that one launch printed."""

    series: Sequence[Series] = ()
    figures: Sequence[Figure] = ()
    facts: dict[str, object] = field(default_factory=dict)
    """What the program printed about itself: its version, and what ProgramFact names, such as its
    clock and the cost of recording. A trial stores them as Condition.PROGRAM."""
    work: float | None = None
    """Messages or bytes that the program transferred, if the series do not contain them all."""


class Driver(Protocol):
    """Starts a family of programs that workloads name, and reads their output."""

    name: str

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Why the workload cannot run here, and what to install; None if it can run."""

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """What to start. Raises VicinalError for invalid options of the workload."""

    def read(self, workload: Workload, stdout: str) -> Measured:
        """What the program measured. Raises VicinalError if the output is incomplete or invalid."""
