"""A node that is this host itself."""

from dataclasses import dataclass
from typing import ClassVar

from vicinal.cluster.nodes.host.node import HostNode
from vicinal.cluster.plan.resource import Condition, Held, Observation, Undemanding


@dataclass(frozen=True)
class NativeResource(Undemanding):
    """The one native node of a cluster."""

    KIND: ClassVar[str] = "native"

    cluster: str
    name: str
    cpus: tuple[int, ...]

    @property
    def node(self) -> HostNode:
        """The node, whether it is there or not."""
        return HostNode(self.cluster, self.name, self.cpus)

    @property
    def key(self) -> str:
        return f"{self.KIND}/{self.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """It stands on nothing: processes find a region when they start."""
        return ()

    def observe(self) -> Observation:
        """Its directory is there, and it may be stopped."""
        if not self.node.directory.exists():
            return Observation(Condition.ABSENT)
        if not self.node.is_there:
            return Observation(Condition.BROKEN, f"{self.node.directory} is not as it was made")
        return Observation(Condition.STOPPED if self.node.is_stopped else Condition.READY)

    def check(self, released: Held) -> None:
        """Whether there is the tool that binds processes to its processors."""
        del released  # it takes nothing that others have
        self.node.check()

    def create(self) -> None:
        """Make its directory."""
        self.node.create()

    @property
    def runs(self) -> bool:
        return True

    def start(self) -> None:
        """Let processes run in it again."""
        self.node.start()

    def stop(self) -> None:
        self.node.stop()

    def remove(self) -> None:
        """End all its processes, and take its directory away."""
        self.node.remove()
