"""The server that the machines' region devices ring each other by, where they can interrupt."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.plan.resource import Condition, Observation, Undemanding
from vicinal.cluster.vm.qemu.doorbell import VECTORS
from vicinal.cluster.vm.qemu.doorbell.running import LastingServer


@dataclass(frozen=True)
class DoorbellResource(Undemanding):
    """The server of a cluster. Machines that run do without it; one that starts needs it.

    The path of its socket is shorter than those of machines, which are checked.
    """

    KIND: ClassVar[str] = "doorbell"

    directory: Path
    region: Path
    machines: int

    @classmethod
    def of(cls, machines: tuple[Machine, ...], region: Path) -> Self | None:
        """The server for these machines, which are all of their cluster; None: they need none."""
        doorbell = machines[0].doorbell
        return None if doorbell is None else cls(Path(doorbell).parent, region, len(machines))

    @property
    def needs(self) -> tuple[str, ...]:
        """The region, whose memory it hands out."""
        return ("region/main",)

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        """Whether it runs, and has the region that is there now."""
        if not self.directory.is_dir():
            return Observation(Condition.ABSENT)
        if self._server.process is None:
            return Observation(Condition.STOPPED, "it does not run")
        if not self._server.serves(self.region):
            return Observation(Condition.BROKEN, "it serves a region that is not there any more")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Start it, in a directory of its own."""
        self.start()

    def start(self) -> None:
        """Start it. Machines that run stay with the one that they were connected to."""
        self._server.start(self.region, clients=self.machines, vectors=VECTORS)

    def stop(self) -> None:
        """End it; machines that still run keep their interrupts."""
        self._server.end()

    def remove(self) -> None:
        """End it, and remove its directory."""
        self._server.remove()

    @property
    def _server(self) -> LastingServer:
        return LastingServer(self.directory)
