"""Two hosts of OpenNebula in this process, one of which runs a VM with a region and a VF.

Fakes replace the cards (fake_cards.py), and libvirt with its guests (fake_libvirt.py). A rank here
is a member of the region that counts a heartbeat, and leaves on request. The stock scripts are
stand-ins, and there is no ssh between the hosts.
"""

import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from fake_cards import fake_vfs, igb
from fake_libvirt import FakeDomain, FakeLibvirt
from test_opennebula_network import first_of, nic, nics

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.host import system
from vicinal.integrations.opennebula.call import Call
from vicinal.integrations.opennebula.destination import Step
from vicinal.integrations.opennebula.held_resources import HeldResources, read_mark
from vicinal.integrations.opennebula.moves import Arrival
from vicinal.integrations.opennebula.network import Network
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.request import Limits, RegionRequest
from vicinal.integrations.opennebula.vm import Site, Vm
from vicinal.region import inspect
from vicinal.region.format import (
    SECTION,
    SLOT,
    Liveness,
    RequestedRoute,
    SlotState,
    section_offset,
    slot_offset,
)

VM = 7
NAME = f"one-{VM}"
REQUEST = RegionRequest(5, "job42", 8 << 20, 16)
VFS = {"a": first_of("igb", 0), "b": first_of("igb", 1)}
"""The VF that OpenNebula chose for the VM, on each host."""
_BEAT_SECONDS = 0.02
_GUEST_ADDRESS = {
    "type": "pci",
    "domain": "0x0000",
    "bus": "0x00",
    "slot": "0x09",
    "vf": "0x0",
}
"""The VF's PCI address in the guest, which stays the same."""


class Rank:
    """A member of a region that counts a heartbeat like a rank in a VM, and leaves on request."""

    def __init__(self, region: Path, slot: int, *, obeys: bool = True) -> None:
        self.still = False
        self._obeys = obeys
        self._over = threading.Event()
        header = inspect(region, patience=0).header
        with region.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        offset = section_offset(slot, header.members, header.section_bytes)
        self._section = np.frombuffer(self._memory, SECTION, 1, offset)
        self._slot = np.frombuffer(self._memory, SLOT, 1, slot_offset(slot))
        self._section["epoch"], self._section["liveness"] = 1, Liveness.HEARTBEAT
        self._section["core"] = 1
        self._slot["claim"] = 1 << 32 | SlotState.JOINED
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def is_in(self) -> bool:
        return int(self._slot["claim"][0]) & 0xFFFFFFFF == SlotState.JOINED

    @property
    def requested(self) -> int:
        return int(self._slot["requested_route"][0]) & 0xFFFFFFFF

    def _live(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            if self.still:
                continue
            self._section["heartbeat"] += 1
            if self._obeys and self.requested == RequestedRoute.LEAVE:
                self._slot["claim"] = 1 << 32 | SlotState.FREE

    def end(self) -> None:
        self._over.set()
        self._thread.join()


class OneHost:
    """A host as its driver's scripts see it."""

    def __init__(self, lab: "Lab", name: str) -> None:
        self.lab, self.name = lab, name
        directory = lab.directory / name
        self.regions = directory / "shm"
        self.regions.mkdir(parents=True)
        self.fake = FakeLibvirt(name, lab.before)
        _, self.vfs = fake_vfs(directory / "card", igb())
        self.vfs.create(igb().address, 2, owner="cloud")
        running = lambda: {int(each.removeprefix("one-")) for each in self.fake.domains}  # noqa: E731
        self.records = Records(directory / "state", running, self.regions)
        self.limits = Limits()
        self.host = system.Host()
        """The processors and NUMA nodes of this machine."""
        self.network = Network(self.vfs, running, free_seconds=0.2)

    @property
    def region(self) -> Path:
        return self.regions / REQUEST.name

    @property
    def site(self) -> Site:
        hypervisor = Hypervisor(self.name, self.fake)  # type: ignore[arg-type]
        return Site(
            hypervisor,
            self.records,
            self.limits,
            lambda: self.vfs,
            self.stock,
            lambda: b"x",
            self.host,
        )

    @property
    def vm(self) -> Vm:
        return self.site.vm(VM)

    def call(self, action: str, *arguments: str) -> Call:
        return Call(Path("/remotes/vmm/vicinal") / action, (*arguments, str(VM), self.name))

    def prepare(self) -> None:
        """Do what OpenNebula asks of the network's driver before the VM starts or arrives."""
        self.network.prepare(VM, nics(nic(VFS[self.name])))

    def clean(self) -> None:
        assert self.network.clean(VM, []) == []

    def stock(self, call: Call, hold: int, given: bytes | None) -> int:
        """Act as OpenNebula's stock script; returns its exit status."""
        assert hold > 0
        assert given == b"x"
        domain = self.fake.domains.get(NAME)
        try:
            self.lab.before(f"{self.name}: stock {call.action}")
        except VicinalError:
            return 1
        if call.action == "migrate":
            assert domain is not None
            assert call.arguments[0] == NAME
            domain.copy_to(self.lab.hosts[call.arguments[1]].fake)
        elif call.action == "save":
            assert domain is not None
            domain.copy_to(self.lab.checkpoint)
        elif call.action == "restore":
            self.lab.checkpoint.domains[NAME].copy_to(self.fake)
        return 0


class Lab:
    """Hosts a and b, and the VM on a."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: list[str] = []
        self.fails: Callable[[str], BaseException | None] = lambda _: None
        """The error of a step, by the step's description; None if the step succeeds."""
        self.checkpoint = FakeLibvirt("checkpoint", lambda _: None)
        self.ranks: list[Rank] = []
        self.hosts = {name: OneHost(self, name) for name in "ab"}
        self.a, self.b = self.hosts.values()
        self.a.prepare()
        with self.a.records.held(VM, REQUEST, self.a.limits):
            self.a.fake.run(NAME, _domain())
        self.log.clear()

    def before(self, what: str) -> None:
        self.log.append(what)
        for rank in self.ranks[:1]:
            rank.still = {"a: it stands still": True, "a: it goes on": False}.get(what, rank.still)
        if error := self.fails(what):
            raise error

    def fail_at(self, *steps: str, error: BaseException | None = None, once: bool = True) -> None:
        """Make steps fail, the first time or always."""
        left = list(steps)

        def fails(what: str) -> BaseException | None:
            if what not in left:
                return None
            if once:
                left.remove(what)
            return error or VicinalError(f"{what} does not work", "none")

        self.fails = fails

    def run_rank(self, slot: int, *, obeys: bool = True) -> Rank:
        self.ranks.append(Rank(self.a.region, slot, obeys=obeys))
        return self.ranks[-1]

    @contextmanager
    def reach(self, _call: Call, host: str, *, killed: bool = False) -> Iterator[Any]:
        """The other host, without ssh. If the driver is killed, the host hears no more from it."""
        there = self.hosts[host]
        arrival = Arrival(there.call("arrive", "-"), there.site)

        class Far:
            def ask(_, step: Step, **values: Any) -> dict[str, Any]:  # noqa: N805
                self.before(f"{host}: {step}")
                return arrival.ask(step, **values)

        try:
            yield Far()
        finally:
            if not killed:
                arrival.ask(Step.OVER)
            with suppress(VicinalError):
                arrival.end()

    def saved(self) -> HeldResources | None:
        """The resources that the checkpoint of the VM records."""
        return read_mark(self.checkpoint.domains[NAME])  # type: ignore[arg-type]

    def domain(self, host: str) -> FakeDomain:
        return self.hosts[host].fake.domains[NAME]

    def is_whole(self, host: str) -> bool:
        """Check that the VM runs only here, with all its resources, and nothing else is left."""
        (where,) = [each for each in self.hosts.values() if NAME in each.fake.domains]
        assert where.name == host
        domain = self.domain(host)
        assert where.vm.runs
        assert domain.regions == [REQUEST.name]
        assert domain.vfs == [VFS[host]]
        assert domain.guest_addresses == [str(_GUEST_ADDRESS)]
        assert where.region.exists()
        assert not where.vm.lacks
        for each in self.hosts.values():
            assert each.records.lacking() == []
            if each is not where:
                assert not each.region.exists()
                assert each.records.all() == []
        return True

    def end(self) -> None:
        for rank in self.ranks:
            rank.end()


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _domain() -> str:
    bus, slot, function = VFS["a"][5:7], VFS["a"][8:10], VFS["a"][-1]
    address = " ".join(f"{key}='{value}'" for key, value in _GUEST_ADDRESS.items())
    return f"""<domain type='kvm'><name>{NAME}</name><devices>
<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x0000'
bus='0x{bus}' slot='0x{slot}' function='0x{function}'/></source><address {address}/></hostdev>
<shmem name='{REQUEST.name}' role='peer'><model type='ivshmem-plain'/><size unit='M'>8</size>
</shmem></devices></domain>"""
