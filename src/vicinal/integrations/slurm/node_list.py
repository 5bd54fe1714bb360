"""The list of a job's nodes on a host, by which tasks enter their nodes (slurm/node_list.h)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.daemon import started
from vicinal.base.errors import VicinalError
from vicinal.base.files import Durability, write_atomically


@dataclass(frozen=True)
class Process:
    """A process by the supervisor's number, and its start, which tells it from later processes."""

    number: int
    began: int

    @classmethod
    def of(cls, number: int) -> "Process":
        """The process with this number. Raises VicinalError if it does not run."""
        began = started(Path(f"/proc/{number}"))
        if began is None:
            raise VicinalError(
                f"process {number} of the job's nodes ended right after its start",
                "check that the job has enough memory",
            )
        return cls(number, began)

    @property
    def words(self) -> str:
        """The process in a line of the list."""
        return f"{self.number} {self.began}"


@dataclass(frozen=True)
class ListedNode:
    """A node in the list."""

    name: str
    process: Process | None
    """The first process of a container; None if guest_task.py runs tasks in the node."""


@dataclass(frozen=True)
class ListedVfs:
    """The VFs of a node, for its tasks."""

    addresses: Sequence[str]
    """PCI addresses."""
    interfaces: Sequence[str]
    devices: Sequence[str]

    @property
    def words(self) -> str:
        """The VFs in a line of the list."""
        lists = (self.addresses, self.interfaces, self.devices)
        return " ".join(",".join(dict.fromkeys(each)) or "-" for each in lists)


@dataclass(frozen=True)
class NodeList:
    """The complete list for tasks."""

    nodes: Sequence[ListedNode]
    region: tuple[str, int] | None
    """The value of VICINAL_REGION in containers, and the region's member slots."""
    identity: Process | None = None
    """Process whose user namespace tasks in containers join; None: tasks use the containers'
    own.
    """
    vfs: Mapping[str, ListedVfs] = field(default_factory=dict)
    """VFs by node name; empty if the job has none."""
    interface: str | None = None
    """Interface by which all nodes of the job reach each other; None: the nodes' default."""

    def write(self, directory: Path) -> None:
        """Write the list atomically into the supervisor's directory, where tasks read it."""
        lines = []
        if self.region is not None:
            lines.append(f"region {self.region[0]} {self.region[1]}\n")
        if self.identity is not None:
            lines.append(f"identity {self.identity.words}\n")
        if self.interface is not None:
            lines.append(f"interface {self.interface}\n")
        for node in self.nodes:
            kind = "exec" if node.process is None else f"container {node.process.words}"
            lines.append(f"node {node.name} {kind}\n")
            if node.name in self.vfs:
                lines.append(f"vfs {self.vfs[node.name].words}\n")
        write_atomically(directory / "nodes", "".join(lines), Durability.NONE)
