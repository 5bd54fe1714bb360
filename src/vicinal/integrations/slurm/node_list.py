"""The list of a job's nodes on a host, which tasks get into their nodes by (slurm/node_list.h)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.daemon import started
from vicinal.base.errors import VicinalError
from vicinal.base.files import Durability, write_atomically


@dataclass(frozen=True)
class Process:
    """A process as the keeper numbers it, told by its beginning from others of that number."""

    number: int
    began: int

    @classmethod
    def of(cls, number: int) -> "Process":
        """One that runs. Raises VicinalError where it does not."""
        began = started(Path(f"/proc/{number}"))
        if began is None:
            raise VicinalError(
                f"process {number} of the job's nodes ended as soon as it was started",
                "see that memory suffices",
            )
        return cls(number, began)

    @property
    def words(self) -> str:
        """It in a line of the list."""
        return f"{self.number} {self.began}"


@dataclass(frozen=True)
class ListedNode:
    """A node as tasks find it."""

    name: str
    process: Process | None
    """The first process of a container; None where tasks are run in it by guest_task.py."""


@dataclass(frozen=True)
class ListedFunctions:
    """What tasks in a node are told of the functions that it has."""

    addresses: Sequence[str]
    """On the PCI bus."""
    interfaces: Sequence[str]
    devices: Sequence[str]

    @property
    def words(self) -> str:
        """They in a line of the list."""
        lists = (self.addresses, self.interfaces, self.devices)
        return " ".join(",".join(dict.fromkeys(each)) or "-" for each in lists)


@dataclass(frozen=True)
class NodeList:
    """All that tasks have to know."""

    nodes: Sequence[ListedNode]
    region: tuple[str, int] | None
    """What VICINAL_REGION is in containers, and member slots."""
    identity: Process | None = None
    """Its user namespace is that of tasks in containers; None: they have the containers'."""
    functions: Mapping[str, ListedFunctions] = field(default_factory=dict)
    """By the names of nodes; empty where the job has none."""
    interface: str | None = None
    """What all nodes of the job reach each other by, if that is not what they have anyway."""

    def write(self, directory: Path) -> None:
        """Put it where tasks look, so that they find all of it or nothing."""
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
            if node.name in self.functions:
                lines.append(f"functions {self.functions[node.name].words}\n")
        write_atomically(directory / "nodes", "".join(lines), Durability.NONE)
