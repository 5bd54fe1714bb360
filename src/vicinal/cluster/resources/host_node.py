"""The resource of a host node, which is this host itself."""

from dataclasses import dataclass
from typing import ClassVar

from vicinal.cluster.nodes.host.node import HostNode
from vicinal.cluster.plan.resource import Condition, Held, Observation, Undemanding


@dataclass(frozen=True)
class HostNodeResource(Undemanding):
    """The host node of a cluster; a host has at most one."""

    KIND: ClassVar[str] = "host-node"

    cluster: str
    name: str
    cpus: tuple[int, ...]

    @property
    def node(self) -> HostNode:
        """The node, which may not exist."""
        return HostNode(self.cluster, self.name, self.cpus)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """No other resource: processes find a region when they start."""
        return ()

    def observe(self) -> Observation:
        """Check the node's directory, and whether the node is stopped."""
        if not self.node.directory.exists():
            return Observation(Condition.ABSENT)
        if not self.node.is_there:
            return Observation(Condition.BROKEN, f"{self.node.directory} was changed")
        return Observation(Condition.STOPPED if self.node.is_stopped else Condition.READY)

    def check(self, released: Held) -> None:
        """Check that the tool exists that pins processes to the node's processors."""
        del released  # needs nothing that other resources release
        self.node.check()

    def create(self) -> None:
        """Create the node's directory."""
        self.node.create()

    @property
    def runs(self) -> bool:
        return True

    def start(self) -> None:
        """Permit processes in the node again."""
        self.node.start()

    def stop(self) -> None:
        self.node.stop()

    def remove(self) -> None:
        """End all processes of the node, and remove its directory."""
        self.node.remove()
