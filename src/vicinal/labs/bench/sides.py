"""The sides of bars: MPI libraries on paths, limits of the machine, creation of clusters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.labs.bench.metric import Metric
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.libraries import Mpi, mpi_prefix

MPI_TITLES = {mpi: mpi.full_name for mpi in Mpi}

CACHE_LINE = "cache-line"
PIPELINED_COPY = "pipelined-copy"


@dataclass(frozen=True)
class Scenario:
    """One MPI library on one path; nodes, cores and programs are the same for all."""

    result_key: ClassVar[str] = "scenario"
    """The key that holds a side of this kind in a result."""
    mpi: Mpi
    path: MessagePath
    cma: bool = True
    """On the path shared-memory: whether a process may copy from the memory of another."""
    own_title: str = ""
    variables: tuple[tuple[str, str], ...] = field(default=())
    """Environment variables in addition to those of the path."""
    ranks: int = 2
    arguments: tuple[str, ...] = ()
    """Arguments of the program, before those for sizes and times."""
    heap: bool = False
    """On the path region: whether large allocations of the program lie in the region."""
    one_node: bool = False
    """On the path region: whether the ranks share a node, and so a PID namespace."""
    hosts: int = 1
    """On the path region: the number of hosts, each with a region of its own, and a network."""
    guests: bool = False
    """Whether the nodes are virtual machines."""
    metric: Metric | None = None
    """The metric that is measured on this side instead of the bar's metric."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scenario":
        """Make a scenario from the data of a file of bars."""
        metric = values.get("metric")
        return cls(
            mpi=Mpi(values["mpi"]),
            path=MessagePath(values["path"]),
            cma=values.get("cma", True),
            own_title=values.get("title", ""),
            variables=tuple(values.get("variables", {}).items()),
            ranks=values.get("ranks", 2),
            arguments=tuple(values.get("arguments", ())),
            heap=values.get("heap", False),
            one_node=values.get("one_node", False),
            hosts=values.get("hosts", 1),
            guests=values.get("guests", False),
            metric=Metric(metric) if metric else None,
        )

    @property
    def nodes(self) -> int:
        """The number of nodes of the ranks. An MPI library's own shared memory takes one."""
        return 1 if self.path is MessagePath.SHARED_MEMORY or self.one_node else self.ranks

    @property
    def path_title(self) -> str:
        """The path in the words of tables and figures."""
        if self.own_title:
            return self.own_title
        if self.path is MessagePath.SHARED_MEMORY:
            return "own shared memory" if self.cma else "own shared memory, no CMA"
        return f"{self.path.value} between guests" if self.guests else self.path.value

    @property
    def title(self) -> str:
        """The whole scenario in words."""
        return f"{MPI_TITLES[self.mpi]}, {self.path_title}"

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, as a phrase; None where it can."""
        try:
            mpi_prefix(self.mpi)
        except VicinalError:
            return f"{MPI_TITLES[self.mpi]} is not installed"
        try:
            if self.guests:
                find_qemu()
        except VicinalError as error:
            return error.message
        return None

    def to_dict(self) -> dict[str, object]:
        """The scenario in the form of results."""
        return {
            "mpi": self.mpi.value,
            "path": self.path.value,
            "cma": self.cma if self.path is MessagePath.SHARED_MEMORY else None,
            "title": self.title,
            "nodes": self.nodes,
            "ranks": self.ranks,
            "hosts": self.hosts,
            "guests": self.guests,
            "heap": self.heap,
            "arguments": list(self.arguments),
            "variables": dict(self.variables),
        }


@dataclass(frozen=True)
class Limit:
    """A limit of the machine that a bar compares with, measured in turn with the other sides."""

    result_key: ClassVar[str] = "limit"
    metric: ClassVar[None] = None
    kind: str
    """CACHE_LINE or PIPELINED_COPY."""

    @property
    def title(self) -> str:
        """The limit in a few words, for tables."""
        if self.kind == CACHE_LINE:
            return "one cache line from core to core"
        return "two cores that copy through shared chunks"

    def unavailable(self) -> str | None:
        """Always None, because every machine has limits."""
        return None

    def to_dict(self) -> dict[str, object]:
        """The limit in the form of results."""
        return {"limit": self.kind, "title": self.title}


@dataclass(frozen=True)
class Setup:
    """A virtual cluster of equal nodes whose creation is timed."""

    result_key: ClassVar[str] = "setup"
    metric: ClassVar[None] = None
    backend: str
    """The back end as in a cluster file: container or vm."""
    count: int
    runtime: str | None = None
    """For containers."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Setup":
        """Make a cluster from the data of a file of bars."""
        return cls(values["backend"], values["count"], values.get("runtime"))

    @property
    def title(self) -> str:
        """The cluster in a few words, for tables."""
        if self.runtime is None:
            return f"{self.count} virtual machines"
        return f"{self.count} containers by {self.runtime}"

    @property
    def description(self) -> dict[str, Any]:
        """The content of the cluster file without its name."""
        nodes = {"name": "node", "count": self.count, "backend": self.backend}
        if self.runtime is not None:
            nodes["runtime"] = self.runtime
        return {"nodes": [nodes], "region": {"members": max(16, 2 * self.count)}}

    def unavailable(self) -> str | None:
        """Why it cannot be measured here, as a phrase; None where it can."""
        try:
            if self.backend == "container":
                choose_runtime(self.runtime)
            else:
                find_qemu()
        except VicinalError as error:
            return error.message
        return None

    def to_dict(self) -> dict[str, object]:
        """The cluster in the form of results."""
        return {
            "backend": self.backend,
            "count": self.count,
            "runtime": self.runtime,
            "title": self.title,
        }


Side = Scenario | Limit | Setup


def read_side(entry: Mapping[str, Any]) -> Side:
    """The side that an entry of a file of bars describes."""
    if "limit" in entry:
        return Limit(entry["limit"])
    return Setup.from_dict(entry) if "backend" in entry else Scenario.from_dict(entry)
