"""A virtual cluster that is made to see how long that takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.vm.qemu.choice import find_qemu


@dataclass(frozen=True)
class Setup:
    """So many nodes that are alike."""

    backend: str
    """As in a cluster's file: container or vm."""
    count: int
    runtime: str | None = None
    """For containers."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Setup":
        """Make one of the data that a file of bars holds."""
        return cls(values["backend"], values["count"], values.get("runtime"))

    @property
    def title(self) -> str:
        """The cluster in a few words, for tables."""
        if self.runtime is None:
            return f"{self.count} virtual machines"
        return f"{self.count} containers by {self.runtime}"

    @property
    def description(self) -> dict[str, Any]:
        """All of the cluster's file but its name."""
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
        """The cluster as results hold it."""
        return {
            "backend": self.backend,
            "count": self.count,
            "runtime": self.runtime,
            "title": self.title,
        }
