"""Studies small enough for tests, and a driver of programs that are shell scripts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Comparison, Design, Environment, Quantity, Study, Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.running.view import Shown
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.libraries import Mpi

NATIVE = Environment(
    "native",
    "this host",
    {"nodes": [{"name": "host", "backend": "host"}], "region": "none"},
    path=MessagePath.SHARED_MEMORY,
)
_CONTAINERS = {"nodes": [{"name": "node", "count": 2}], "region": {"members": 8}}
REGION = Environment("region", "containers and their region", _CONTAINERS)
NETWORK = Environment("network", "the same, by TCP", _CONTAINERS, path=MessagePath.NETWORK)


class Scripts:
    """A fake driver: a workload's operation is a script, which prints a JSON object of figures."""

    name = "scripts"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        del mpi, tools
        return "no such tool: install its package" if "lacking" in workload.options else None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        del mpi, tools
        options = workload.options
        return Program(
            ["/bin/sh", "-c", workload.operation],
            workload.ranks,
            server=options.get("server", ()),
            stdin=options.get("stdin", "").encode(),
            files=options.get("files", {}),
        )

    def read(self, workload: Workload, stdout: str) -> Measured:
        del workload
        try:
            figures = json.loads(stdout)
        except ValueError as error:
            raise VicinalError(f"garbage ({error})", "see the program") from error
        return Measured(figures=[Figure(name, value, "s") for name, value in figures.items()])


def script(name: str, text: str, **options: object) -> Workload:
    """A workload of the fake driver, on one rank."""
    return Workload(name, name, "scripts", text, Quantity.TIME, ranks=1, options=options)


def study(
    workloads: Sequence[Workload], environments: Sequence[Environment] = (NATIVE,), trials: int = 2
) -> Study:
    """A study that compares the first environment with each other environment."""
    first, *others = environments
    comparisons = tuple(Comparison(first.name, each.name) for each in others)
    return Study(
        "tiny",
        "a study for tests",
        "Does it run?",
        "Vicinal",
        tuple(environments),
        tuple(workloads),
        Design(comparisons, trials=trials, control=first.name),
    )


@dataclass
class Heard:
    """A view that records what it is shown."""

    lines: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)

    def warn(self, line: str) -> None:
        self.lines.append(line)

    def show(self, shown: Shown) -> None:
        self.shown.append(shown)


def clusters_left(folder: Path) -> list[str]:
    """The names of clusters that remain of the run that wrote the folder."""
    from vicinal.cluster.plan.state import cluster_names

    prefix = json.loads((folder / "manifest.json").read_text())["clusters"]
    return [name for name in cluster_names() if name.startswith(prefix)]
