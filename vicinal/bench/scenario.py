"""What is measured: an MPI library on one of the paths between two ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vicinal.launch.environment import MessagePath, Mpi

MPI_TITLES = {mpi: mpi.full_name for mpi in Mpi}


@dataclass(frozen=True)
class Scenario:
    """One MPI library on one path; the nodes, cores and programs are always the same."""

    mpi: Mpi
    path: MessagePath
    cma: bool = True
    """For the path shared-memory: whether one process may copy out of another's memory."""
    own_title: str = ""
    variables: tuple[tuple[str, str], ...] = field(default=())
    """Environment variables beyond those of the path."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scenario":
        """Make a scenario of the data that a file of bars holds."""
        return cls(
            mpi=Mpi(values["mpi"]),
            path=MessagePath(values["path"]),
            cma=values.get("cma", True),
            own_title=values.get("title", ""),
            variables=tuple(values.get("variables", {}).items()),
        )

    @property
    def nodes(self) -> int:
        """How many nodes the two ranks are on: an MPI's own shared memory takes one."""
        return 1 if self.path is MessagePath.SHARED_MEMORY else 2

    @property
    def path_title(self) -> str:
        """The path in the words of tables and figures."""
        if self.own_title:
            return self.own_title
        if self.path is MessagePath.SHARED_MEMORY:
            return "own shared memory" if self.cma else "own shared memory, no CMA"
        return self.path.value

    @property
    def title(self) -> str:
        """The whole scenario in words."""
        return f"{MPI_TITLES[self.mpi]}, {self.path_title}"

    def to_dict(self) -> dict[str, object]:
        """The scenario as results hold it."""
        return {
            "mpi": self.mpi.value,
            "path": self.path.value,
            "cma": self.cma if self.path is MessagePath.SHARED_MEMORY else None,
            "title": self.title,
            "nodes": self.nodes,
            "variables": dict(self.variables),
        }
