"""A guest moves from one libvirt to another on this host, and from one region to another."""

import os
import signal
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from domain_scenario import enter, two_vms, until_seen
from domain_support import private_daemon
from guest_verify import BOTH_WAYS, Pair, verify

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.pair import pair_identities
from vicinal.cluster.vm.devices import SharedRegion
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.identity import make_keys
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.libvirt.connection import connect
from vicinal.cluster.vm.libvirt.domain_devices import has_region
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.leftovers import remove_leftover
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, define, find, observe, remove, start
from vicinal.cluster.vm.libvirt.migrate import migrate
from vicinal.cluster.vm.libvirt.side import Side
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region import create


def files(spec: DomainSpec, directory: Path) -> tuple[str, ...]:
    """The files to which a VM writes, by their paths if that is its directory."""
    assert spec.control is not None
    return str(directory / spec.console.name), str(directory / spec.control.name)


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
        keys = make_keys(directory, pair_identities())
        path = Path("/dev/shm") / f"vicinal-{directory.name}"
        create(path, members=8, for_guests=True)
        region = SharedRegion(path.name, path.stat().st_size)
        specs = two_vms(directory, image, keys, choice.accelerator, region)
        first = specs[0]
        home = Side(here, f"unix://{directory}/home", region, names=files(first, directory))
        away = Side(there, f"unix://{directory}/move", region, names=files(first, target))
        try:
            for spec in specs:
                define(here, spec)
                start(here, spec.name)

            def is_home() -> None:
                assert observe(here, first.name) is DomainState.RUNNING
                assert has_region(here, first.name, region.name)
                assert find(there) == []

            guests = [enter(here, spec, keys) for spec in specs]
            guests[0].run(["sh", "-c", "echo kept >/tmp/kept"])
            guests[0].close()
            time.sleep(2)  # the guest must notice that the connection ended

            # After a failure the guest stays here, in the region.
            nowhere = replace(away, transport=f"unix://{directory}/nowhere/socket")
            with pytest.raises(VicinalError, match=r"cannot be moved to .*nowhere"):
                migrate(first.name, home, nowhere)
            is_home()
            with pytest.raises(VicinalError, match=r"was not moved to .* within 0\.3 s"):
                migrate(first.name, home, away, seconds=0.3)
            is_home()
            interrupt = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                migrate(first.name, home, away)
            is_home()
            # A guest that has moved, and cannot get its region there, moves back.
            short = SharedRegion(f"{path.name}-short", region.size_bytes)
            short.path.write_bytes(bytes(4096))
            with pytest.raises(VicinalError, match="short cannot be attached"):
                migrate(first.name, home, replace(away, region=short))
            is_home()

            moved = migrate(first.name, home, away)
            print(f"moved in {moved.seconds:.1f} s, stood still for {moved.still_seconds} s")
            assert moved.still_seconds is not None
            assert 0 < moved.still_seconds < moved.seconds
            assert [each.name for each in find(here)] == [specs[1].name]
            found = [(each.name, each.node, each.state) for each in find(there, first.cluster)]
            assert found == [(first.name, first.node, DomainState.RUNNING)]
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
            Path(f"{path}-short").unlink(missing_ok=True)
        assert find(here) == find(there) == []
        assert not path.exists()
