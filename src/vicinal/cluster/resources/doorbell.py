"""The ivshmem server of a cluster's VMs, by which their region devices interrupt each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.resource import Condition, Observation, Undemanding
from vicinal.cluster.vm.qemu.doorbell import VECTORS
from vicinal.cluster.vm.qemu.doorbell.running import LastingServer


@dataclass(frozen=True)
class DoorbellResource(Undemanding):
    """The ivshmem server of a cluster. Starting VMs need it; running VMs do not.

    The length of its socket's path is not checked, because the paths of the VMs' sockets are longer
    and are checked.
    """

    KIND: ClassVar[str] = "doorbell"

    directory: Path
    region: Path
    vms: int

    @classmethod
    def of(cls, vms: tuple[Vm, ...], region: Path) -> Self | None:
        """Return the server for all VMs of a cluster; None if their devices cannot interrupt."""
        doorbell = vms[0].doorbell
        return None if doorbell is None else cls(Path(doorbell).parent, region, len(vms))

    @property
    def needs(self) -> tuple[str, ...]:
        """The region, whose file the server passes to VMs."""
        return ("region/main",)

    @property
    def runs(self) -> bool:
        return True

    def observe(self) -> Observation:
        """Check that the server runs, and serves the present region."""
        if not self.directory.is_dir():
            return Observation(Condition.ABSENT)
        if self._server.process is None:
            return Observation(Condition.STOPPED, "it does not run")
        if not self._server.serves(self.region):
            return Observation(Condition.BROKEN, "it serves a region that no longer exists")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Start the server, in a directory of its own."""
        self.start()

    def start(self) -> None:
        """Start the server. Running VMs stay connected to the earlier server."""
        self._server.start(self.region, clients=self.vms, vectors=VECTORS)

    def stop(self) -> None:
        """End the server; running VMs can still interrupt each other."""
        self._server.end()

    def remove(self) -> None:
        """End the server, and remove its directory."""
        self._server.remove()

    @property
    def _server(self) -> LastingServer:
        return LastingServer(self.directory)
