"""A guest moves from one libvirt to another on this host, out of the region and into it again."""

import tempfile
import time
from pathlib import Path

import pytest
from domain_scenario import BOTH_WAYS, Pair, enter, two_machines, until_seen, verify
from domain_support import private_daemon

from vicinal.bench.programs import mpi_program
from vicinal.cluster.domains.connection import connect
from vicinal.cluster.domains.domain_devices import has_region
from vicinal.cluster.domains.domain_spec import SharedRegion
from vicinal.cluster.domains.leftovers import remove_leftover
from vicinal.cluster.domains.lifecycle import DomainState, define, find, observe, remove, start
from vicinal.cluster.domains.migrate import Move, migrate
from vicinal.cluster.guest_accelerator import choose_accelerator
from vicinal.cluster.guest_keys import make_keys
from vicinal.cluster.guest_qemu_choice import find_qemu
from vicinal.cluster.guest_shell import BOOT_SECONDS, GuestShell
from vicinal.cluster.image import build_image
from vicinal.errors import VicinalError
from vicinal.launch.environment import Mpi
from vicinal.region import create

GUARD_SECONDS = 900.0  # a minute on two idle cores with TCG


@pytest.mark.timeout(GUARD_SECONDS)
def test_a_guest_moves_and_is_in_the_region_again() -> None:
    image = build_image(print)
    choice = choose_accelerator(find_qemu(), image, print)
    print(choice.accelerator.description)
    with (
        private_daemon() as here_uri,
        private_daemon() as there_uri,
        tempfile.TemporaryDirectory(prefix="vicinal-") as name,
        connect(here_uri) as here,
        connect(there_uri) as there,
    ):
        directory = Path(name)
        target = directory / "there"
        target.mkdir()
        keys = make_keys(directory)
        path = Path("/dev/shm") / f"vicinal-{directory.name}"
        create(path, members=8, for_guests=True)
        region = SharedRegion(path.name, path.stat().st_size)
        specs = two_machines(directory, image, keys, choice.accelerator, region)
        first, control = specs[0], specs[0].control
        assert control is not None
        paths = {first.console: target / "console", control: target / control.name}
        try:
            for spec in specs:
                define(here, spec)
                start(here, spec.name)
            guests = [enter(here, spec, keys) for spec in specs]
            guests[0].run(["sh", "-c", "echo kept >/tmp/kept"])
            guests[0].close()
            time.sleep(2)  # the guest has to see that the connection ended

            # What does not work leaves the guest here, in the region.
            nowhere = Move(f"unix://{directory}/nowhere/socket", paths)
            with pytest.raises(VicinalError, match=r"cannot be moved to .*nowhere"):
                migrate(here, there, first.name, nowhere, region=region)
            move = Move(f"unix://{directory}/move", paths)
            with pytest.raises(VicinalError, match=r"was not moved to .* within 0\.3 s"):
                migrate(here, there, first.name, move, region=region, seconds=0.3)
            assert observe(here, first.name) is DomainState.RUNNING
            assert has_region(here, first.name, region.name)
            assert find(there) == []

            migrate(here, there, first.name, move, region=region)
            assert [each.name for each in find(here)] == [specs[1].name]
            moved = [(each.name, each.node, each.state) for each in find(there, first.cluster)]
            assert moved == [(first.name, first.node, DomainState.RUNNING)]
            assert has_region(there, first.name, region.name)

            def failure(what: str) -> VicinalError:
                return VicinalError(f"{first.name}: {what}", f"see {target}/console")

            guests[0] = GuestShell(first.node, target, keys, alive=lambda _: True, failure=failure)
            guests[0].connect(BOOT_SECONDS * choice.accelerator.patience)
            assert guests[0].run(["cat", "/tmp/kept"]).stdout == "kept\n"
            until_seen(guests[0], True)
            program = str(mpi_program(Mpi.MPICH, "verify"))
            assert verify(Pair(guests, image, region.path), program) == BOTH_WAYS
            for guest in guests:
                guest.close()
        finally:
            for spec in specs:
                remove(here, spec.name)
                remove(there, spec.name)
            remove_leftover(region)
        assert find(here) == find(there) == []
        assert not path.exists()
