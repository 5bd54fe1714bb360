"""An MPI job between two guests with a check of every byte, and the region's connections."""

from collections.abc import Sequence
from pathlib import Path

from guest_support import BOUND

from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.image.building import GuestImage
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.labs.programs import read_records
from vicinal.launch.guest_job import run_in_guests
from vicinal.mpi.job import Job
from vicinal.region import RegionState, inspect

BOTH_WAYS = {("guest0", "guest1"), ("guest1", "guest0")}


class Pair:
    """Guests that a test started. Implements JobGuests of nodes/job_nodes.py."""

    network = GuestNetwork.VIRTIO
    alone: Sequence[str] = ()

    def __init__(self, guests: list[GuestShell], image: GuestImage, region: Path) -> None:
        self.guests, self.image, self._region = guests, image, region

    def inspect_all(self) -> tuple[RegionState, ...]:
        return (inspect(self._region),)

    def enter(self) -> None:
        """The test has connected to them."""

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """The region has room."""

    def check(self) -> None:
        """The test knows whether its guests live."""

    def traffic(self, _job: int) -> None:
        return None


def verify(pair: Pair, program: str) -> set[tuple[str, str]]:
    """Check every byte of an MPI job's messages; returns who sent to whom through the region."""
    job = Job(program=[program, "--max-size", "65536", "--rounds", "1"], ranks=2, mpi="mpich")
    done = run_in_guests(job, pair, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    records = read_records(done.stdout)
    assert len(records) > 1, done.stdout
    assert all(record["errors"] == 0 for record in records), records
    assert sum(record["messages"] for record in records) > 0
    assert done.region is not None
    names = {member.slot: member.hostname for member in done.region.members}
    return {
        (names[each.sender], names[each.receiver])
        for each in done.region.connections
        if each.messages > 0 and each.bytes > 0
    }
