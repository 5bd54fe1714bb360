"""What is measured: an MPI library on one of the paths between its ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.labs.bench.metric import Metric
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.libraries import Mpi, mpi_prefix

MPI_TITLES = {mpi: mpi.full_name for mpi in Mpi}


@dataclass(frozen=True)
class Scenario:
    """One MPI library on one path; nodes, cores and programs are the same for all."""

    mpi: Mpi
    path: MessagePath
    cma: bool = True
    """For the path shared-memory: whether one process may copy out of another's memory."""
    own_title: str = ""
    variables: tuple[tuple[str, str], ...] = field(default=())
    """Environment variables beyond those of the path."""
    ranks: int = 2
    arguments: tuple[str, ...] = ()
    """For the program, before those about sizes and times."""
    heap: bool = False
    """For the path region: whether large allocations of the program lie in the region."""
    one_node: bool = False
    """For the path region: whether the ranks share a node, and so a PID namespace."""
    hosts: int = 1
    """For the path region: each with a region of its own, and a network between them."""
    guests: bool = False
    """Whether the nodes are virtual machines."""
    metric: Metric | None = None
    """What is measured here in place of the bar's metric."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scenario":
        """Make a scenario of the data that a file of bars holds."""
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
        """How many nodes the ranks are on: an MPI's own shared memory takes one."""
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
        """The scenario as results hold it."""
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
