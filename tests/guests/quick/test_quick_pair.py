"""Two guests and one MPI job between them: the part of guests in the common check.

They start from a snapshot, as VMs of Slurm's jobs do. The first run on a host makes it. All
other tests of guests are in the other folders, which are long suites.
"""

import tempfile
from pathlib import Path

from guest_verify import BOTH_WAYS, Pair, verify

from vicinal.cluster.vm.image.building import find_image
from vicinal.cluster.vm.snapshot.starting import GuestMake, start_guests
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region import create

NAMES = ("guest0", "guest1")


def test_every_byte_of_a_job_goes_through_the_region_of_two_guests() -> None:
    # Not the test's own directory, because the paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="vicinal-", dir="/dev/shm") as name:
        directory = Path(name)
        region = directory / "region"
        create(region, members=8, for_guests=True)
        guests = start_guests([GuestMake(each) for each in NAMES], directory, region, say=print)
        try:
            shells = [guest.shell for guest in guests]
            assert [shell.run(["hostname"]).stdout.strip() for shell in shells] == [*NAMES]
            pair = Pair(shells, find_image(), region)
            assert verify(pair, str(mpi_program(Mpi.MPICH, "verify"))) == BOTH_WAYS
        finally:
            for guest in guests:
                guest.stop()
