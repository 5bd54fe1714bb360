"""A guest with a device of its host moves between two libvirts: it releases it, and gets another.

These hosts have no VFIO. So a virtio network card, which QEMU emulates, replaces a virtual
function, and is plugged into the guest's PCI bus and removed as a VF is. Real are the guest
that releases the device, libvirt's events, the move, and the order of the steps. Fake is the part
that takes a VF from its driver and sets its hardware address (it is tested in
tests/python/host/test_vf_moves.py).
"""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from domain_scenario import enter, two_vms
from domain_support import private_daemon
from guest_support import BOUND
from test_domain_migration import files

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.pair import pair_identities
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import PciFunction, SharedRegion
from vicinal.cluster.vm.guest.commands import BOOT_SECONDS
from vicinal.cluster.vm.guest.identity import Keys, make_keys
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.libvirt import domain_devices
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_devices import attach_pci_function, has_pci_function
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, define, find, observe, remove, start
from vicinal.cluster.vm.libvirt.migrate import migrate
from vicinal.cluster.vm.libvirt.side import Side
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu

MAC = "02:00:00:00:00:77"
HERS, THEIRS = PciFunction("0000:01:08.1"), PciFunction("0000:05:08.2")


def stand_in(function: PciFunction) -> str:
    """A network card with the VF's hardware address; its alias names the VF."""
    alias = f"ua-{function.address.replace(':', '-').replace('.', '-')}-{os.urandom(2).hex()}"
    return (
        f"<interface type='user'><mac address='{MAC}'/><model type='virtio'/>"
        f"<alias name='{alias}'/></interface>"
    )


def stand_in_of(xml: str, function: PciFunction) -> str | None:
    beginning = f"ua-{function.address.replace(':', '-').replace('.', '-')}-"
    for alias in ElementTree.fromstring(xml).iterfind("devices/interface/alias"):
        if (name := alias.get("name", "")).startswith(beginning):
            return name
    return None


@dataclass
class Trial:
    """One guest, two libvirts, and the operations on the two VFs in order."""

    spec: DomainSpec
    home: Side
    away: Side
    keys: Keys
    accelerator: Accelerator
    log: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)

    def side(self, side: Side, name: str) -> Side:
        """A side that records the operations on its VF."""

        def do(what: str) -> None:
            # At this moment no guest has the VF.
            for each in (self.home, self.away):
                if observe(each.hypervisor, self.spec.name) is DomainState.RUNNING:
                    assert not has_pci_function(each.hypervisor, self.spec.name, HERS)
                    assert not has_pci_function(each.hypervisor, self.spec.name, THEIRS)
            self.log.append(f"{what} {name}")
            if f"{what} {name}" in self.failing:
                raise VicinalError("broken", "mend it")

        return replace(side, announce=lambda: do("announce"), withdraw=lambda: do("withdraw"))

    def move(self) -> None:
        self.log.clear()
        migrate(self.spec.name, self.side(self.home, "home"), self.side(self.away, "away"))

    def is_at(self, hypervisor: Hypervisor, vf: PciFunction) -> None:
        assert observe(hypervisor, self.spec.name) is DomainState.RUNNING
        assert has_pci_function(hypervisor, self.spec.name, vf)
        nowhere = self.away if hypervisor is self.home.hypervisor else self.home
        assert find(nowhere.hypervisor) == []

    def cards(self, guest: GuestShell) -> list[str]:
        """The hardware addresses that the guest's kernel sees."""
        found = guest.run(["sh", "-c", "cat /sys/class/net/*/address"]).stdout
        return found.split()

    def see(self, guest: GuestShell) -> None:
        deadline = time.monotonic() + BOUND
        while MAC not in self.cards(guest):
            assert time.monotonic() < deadline, self.cards(guest)
            time.sleep(0.5)
        assert guest.run(["cat", "/tmp/kept"]).stdout == "kept\n"
        guest.close()
        time.sleep(2)  # the guest must notice that the connection ended


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setattr(domain_devices, "pci_function_xml", stand_in)
    monkeypatch.setattr(domain_devices, "pci_function_device", stand_in_of)
    image = build_image(print)
    choice = choose_accelerator(find_qemu(), image, print)
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
        nothing = SharedRegion("none", 1 << 20)
        first = two_vms(directory, image, keys, choice.accelerator, nothing)[0]
        spec = replace(first, region=None)
        home = Side(
            here, f"unix://{directory}/home", pci_functions=(HERS,), names=files(spec, directory)
        )
        away = Side(
            there, f"unix://{directory}/move", pci_functions=(THEIRS,), names=files(spec, target)
        )
        define(here, spec)
        start(here, spec.name)
        try:
            yield Trial(spec, home, away, keys, choice.accelerator)
        finally:
            remove(here, spec.name)
            remove(there, spec.name)


def test_a_guest_gives_a_device_up_and_gets_one_on_the_other_host(trial: Trial) -> None:
    here, there = trial.home.hypervisor, trial.away.hypervisor
    guest = enter(here, trial.spec, trial.keys)
    guest.run(["sh", "-c", "echo kept >/tmp/kept"])
    assert MAC not in trial.cards(guest)
    attach_pci_function(here, trial.spec.name, HERS)
    trial.see(guest)

    # The other host cannot set up its VF: the guest moves back and gets its own again.
    trial.failing = {"announce away"}
    with pytest.raises(VicinalError, match="broken"):
        trial.move()
    assert trial.log == ["withdraw home", "announce away", "withdraw away", "announce home"]
    trial.is_at(here, HERS)
    trial.failing = set()

    # The move fails while the guest is asked: the guest still releases it, and gets it back.
    interrupt = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        trial.move()
    trial.is_at(here, HERS)
    time.sleep(5)
    trial.is_at(here, HERS)

    trial.move()
    assert trial.log == ["withdraw home", "announce away"]
    trial.is_at(there, THEIRS)
    assert not has_pci_function(there, trial.spec.name, HERS)

    def failure(what: str) -> VicinalError:
        return VicinalError(f"{trial.spec.name}: {what}", "see its console")

    directory = Path(trial.away.names[0]).parent
    again = GuestShell(
        trial.spec.node, directory, trial.keys, alive=lambda _: True, failure=failure
    )
    again.connect(BOOT_SECONDS * trial.accelerator.patience)
    trial.see(again)
