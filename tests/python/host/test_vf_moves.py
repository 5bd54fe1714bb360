"""Migration of a VM with a virtual function: which host's VF it has after any failure.

Both cards are fakes (fake_cards.py), and so are both libvirts (fake_libvirt.py), because the tests
have no card with VFs. The steps, the journals and the records of VFs are real. In
tests/guests/libvirt/test_vf_migration.py, a real guest gives up a device and gets another.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from cluster_file_support import host as processors
from cluster_file_support import read
from fake_cards import FakeHelper, FakeHost, igb, mlx4, mlx5
from fake_libvirt import FakeLibvirt

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.hosts import moving
from vicinal.cluster.hosts.connection import HostPartConnection
from vicinal.cluster.hosts.host_part import Whole, host_part_of
from vicinal.cluster.hosts.moving import (
    MoveStep,
    MoveSteps,
    RemoteMigrationHost,
    move_node,
    repair_moves,
)
from vicinal.cluster.hosts.record import HostRecord, all_moves, host_records, moves
from vicinal.cluster.nodes.vm import migration_host
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.plan.state import cluster_directory, journal_of
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.vfs import CardResource, VfResource
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import PciFunction
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_to

NAME, NODE, DOMAIN = "lab", "vm1", "vicinal-0-lab-vm1"
FILE = """name: lab
hosts: [{name: a, bridge: br0}, {name: b, bridge: br0}]
nodes: [{name: vm, backend: vm, count: 3, network: {vf: {card: CARD}}}]
hypervisor: qemu:///system
region: none
"""
MINE, THEIRS = "0000:01:08.1", "0000:05:08.1"
NOTHING = "00:00:00:00:00:00"


class Killed(BaseException):
    """Simulates SIGKILL: no handler rolls anything back."""


class Lab:
    """Two hosts: vm0 and vm1 are on a, vm2 is on b. `log` has all actions on them, in order."""

    def __init__(self, directory: Path, cluster: Cluster, card: str) -> None:
        self.cluster = cluster
        self.card = card
        self.log: list[str] = []
        self.stop_at: Callable[[str], None] = lambda _: None
        self.current = "a"
        self.fakes = {
            "a": FakeHost(directory / "a", igb(), mlx5(), mlx4()),
            "b": FakeHost(
                directory / "b",
                replace(igb(), address="0000:05:00.0"),
                mlx5(address="0000:06:00.0"),
                mlx4(address="0000:07:00.0"),
            ),
        }
        self.libvirts = {name: FakeLibvirt(name, self.before) for name in self.fakes}
        self.hypervisors = {
            name: Hypervisor(f"qemu+ssh://{name}/system", cast("Any", libvirt))
            for name, libvirt in self.libvirts.items()
        }
        self.agents: list[Agent] = []

    def before(self, what: str) -> None:
        self.stop_at(what)
        self.log.append(what)

    def vfs(self, name: str) -> Vfs:
        helper = FakeHelper(self.fakes[name])

        def ask(operation: str, **fields: Any) -> dict[str, Any]:
            if operation in ("assign", "configure", "reset", "release"):
                step, which = operation, fields.get("vf")
                if operation == "assign":
                    (each,) = fields["vfs"]
                    which = each["vf"]
                    step = "set up" if each["settings"] else step
                elif operation == "release":
                    which = " ".join(fields["vfs"])
                self.before(f"{name}: {step} {which}")
            return helper(operation, **fields)

        return Vfs(self.fakes[name], ask)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        before, self.current = self.current, name
        try:
            yield
        finally:
            self.current = before

    def hypervisor(self, name: str) -> Hypervisor:
        return self.hypervisors[name]

    def desired(self, name: str, moved: dict[str, str]) -> dict[str, Resource]:
        """The resources that the file wants on a host, after the given migrations."""
        keys = {"user-key.pub": "u", "host-key.pub": "h"}
        whole = Whole(self.cluster, {"a": "10.0.0.1", "b": "10.0.0.2"}, keys, moved)
        host_part = host_part_of(json.loads(json.dumps(whole.request(name, with_keys=False))))
        cpus, numa = processors(1, 2, 1)
        with self.on(name):
            found = desired_resources(host_part, cpus, numa, self.vfs(name))
        return {each.key: each for each in found}

    def up(self) -> None:
        """Create the cluster, without the steps that need real VMs."""
        for name in ("a", "b"):
            journal = journal_of(f"{NAME}.{name}")
            wanted = self.desired(name, {})
            for resource in wanted.values():
                if isinstance(resource, CardResource | VfResource):
                    resource.create()
                if isinstance(resource, VmResource):
                    self._define(name, resource.vm)
                journal.write(resource, Event.MADE)
            nodes = tuple(key.removeprefix("vm/") for key in wanted if key.startswith("vm/"))
            record = HostRecord(
                NAME, name, nodes, nodes, (), f"10.0.0.{ord(name)}", "qemu:///system", "br0"
            )
            journal_of(NAME).write(record, Event.MADE)
        self.log.clear()

    def _define(self, name: str, vm: Vm) -> None:
        files = Files(Path(vm.directory))
        files.directory.mkdir(parents=True, exist_ok=True)
        for number in range(3):
            files.keys.archive(f"vm{number}").touch()
        for file in (files.kernel, files.system):
            file.touch()
        Made(Accelerator.TCG, "a fake", ()).write(files)
        assert vm.vf is not None
        given = assigned_to(self.vfs(name), vm.vf)
        spec = vm.spec(tuple(PciFunction(each) for each in given))
        self.libvirts[name].run(vm.domain, domain_xml(spec))

    @contextmanager
    def parts(
        self, source: HostRecord, target: HostRecord, node: str
    ) -> Iterator[tuple[RemoteMigrationHost, RemoteMigrationHost]]:
        """Connections to both hosts' agents, within this process."""
        found = []
        try:
            for record in (source, target):
                agent = Agent(self, record.host)
                self.agents.append(agent)
                found.append(RemoteMigrationHost(cast("HostPartConnection", agent), record, node))
            yield found[0], found[1]
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        while self.agents:
            self.agents.pop().close()

    def migrate(self, host: str = "b") -> None:
        move_node(NAME, journal_of(NAME), NODE, host, 5, lambda _: None)

    def where(self) -> dict[str, list[str]]:
        """The VFs of the VM, by the host that runs the VM."""
        return {
            name: fake.domains[DOMAIN].vfs
            for name, fake in self.libvirts.items()
            if DOMAIN in fake.domains
        }

    def owned(self, name: str) -> list[str]:
        return assigned_to(self.vfs(name), f"vicinal.{NAME}.{NODE}")

    def mac(self, name: str, number: int = 1) -> str:
        card = next(each for each in self.fakes[name].cards.values() if each.interface == "eth1")
        return card.settings[number]["mac"]

    def check(self, host: str) -> None:
        """Check that the VM runs on a host with only its VF, and no step is left."""
        other = "b" if host == "a" else "a"
        assert self.where() == {host: self.owned(host)}
        assert len(self.owned(host)) == 1
        assert self.owned(other) == []
        moved = {NODE: host} if host == "b" else {}
        assert {each.node: each.host for each in all_moves(journal_of(NAME).entries())} == moved
        assert set(moves(journal_of(NAME).entries())) == set(moved)
        vms = {each.host: each.vms for each in host_records(journal_of(NAME).entries())}
        assert NODE in vms[host]
        assert NODE not in vms[other]
        for name in ("a", "b"):
            entries = journal_of(f"{NAME}.{name}").entries()
            assert all(entry.whole for entry in entries.values()), entries
            wanted = self.desired(name, moved)
            assert set(wanted) == set(entries)
            for key, resource in wanted.items():
                assert dict(resource.settings) == dict(entries[key].settings), key


class Agent:
    """A host's agent that answers requests at once."""

    def __init__(self, lab: Lab, host: str) -> None:
        self._lab = lab
        self._host = host
        self._steps: MoveSteps | None = None
        self._answer: dict[str, Any] = {}

    def tell(self, _: object, values: dict[str, Any]) -> None:
        values = json.loads(json.dumps(values))
        with self._lab.on(self._host):
            try:
                if self._steps is None:
                    self._steps = MoveSteps(str(values["host_part"]), str(values["node"]))
                answer = self._steps.do(MoveStep(values["step"]), values)
                self._answer = json.loads(json.dumps(answer))
            except VicinalError as error:
                self._answer = {"error": error.message, "remedy": error.remedy}

    def hear(self) -> dict[str, Any]:
        return self._answer

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    card = getattr(request, "param", "eth1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("vicinal.cluster.nodes.vm.from_file.check_link", lambda *_, **__: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for directory in (cluster_directory(NAME), *(cluster_directory(f"{NAME}.{n}") for n in "ab")):
        directory.mkdir(parents=True)
    found = Lab(tmp_path, read(tmp_path, FILE.replace("CARD", card)), card)
    current = lambda: found.vfs(found.current)  # noqa: E731
    monkeypatch.setattr("vicinal.cluster.resources.vfs.Vfs", current)
    monkeypatch.setattr(moving, "_migration_hosts", found.parts)
    monkeypatch.setattr(moving, "libvirt_of", lambda record: found.hypervisor(record.host))
    monkeypatch.setattr(migration_host, "hypervisor_at", lambda _: found.hypervisor(found.current))
    for name in ("check_bridge", "check_unused", "end_guest_ssh", "check_room"):
        monkeypatch.setattr(migration_host, name, lambda *_: None)
    monkeypatch.setattr(migration_host, "QUIET_SECONDS", 0)
    found.up()
    yield found
    found.hang_up()


def test_the_network_finds_its_address_on_one_host_at_a_time(lab: Lab) -> None:
    lab.check("a")
    mac = lab.mac("a")
    assert mac.startswith("02:")
    lab.migrate()
    assert lab.log == [
        f"b: assign {THEIRS}",
        f"a: its guest gives up {MINE}",
        f"a: reset {MINE}",
        "a: it moves to b",
        f"b: set up {THEIRS}",  # it is already assigned to the VM
        f"b: its guest gets {THEIRS}",
        f"a: release {MINE}",
    ]
    lab.check("b")
    assert (lab.mac("a"), lab.mac("b")) == (NOTHING, mac)
    # At its next start, the VM also gets this host's VF.
    kept = lab.libvirts["b"].domains[DOMAIN].kept
    assert 'bus="0x05"' in kept
    assert 'bus="0x01"' not in kept
    lab.migrate("a")
    lab.check("a")
    assert (lab.mac("a"), lab.mac("b")) == (mac, NOTHING)


@pytest.mark.parametrize("lab", ["mlx5_0", "mlx4_0"], indirect=True)
def test_infiniband_vfs_have_their_guids_on_both_hosts(lab: Lab) -> None:
    def guids(name: str) -> list[str]:
        fake = lab.fakes[name]
        card = next(each for each in fake.cards.values() if each.rdma == lab.card)
        device = fake.device(card.address)
        if lab.card == "mlx4_0":
            return [fake.read(device / "infiniband/mlx4_0/iov/ports/1/admin_guids/2")]
        return [fake.read(device / "sriov/1" / each) for each in ("node", "port")]

    before, free = guids("a"), guids("b")
    assert before != free
    lab.migrate()
    lab.check("b")
    assert guids("b") == before
    assert guids("a") == free
    lab.migrate("a")
    lab.check("a")
    assert (guids("a"), guids("b")) == (before, free)


STEPS = [
    f"b: assign {THEIRS}",
    f"a: its guest gives up {MINE}",
    f"a: reset {MINE}",
    "a: it moves to b",
    f"b: set up {THEIRS}",
    f"b: its guest gets {THEIRS}",
]


@pytest.mark.parametrize("error", [VicinalError("broken", "mend it"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", STEPS)
def test_what_fails_leaves_the_vm_and_its_vf_at_home(
    lab: Lab, step: str, error: BaseException
) -> None:
    failed: list[str] = []
    mac = lab.mac("a")

    def fail(what: str) -> None:
        if what == step and not failed:
            failed.append(what)
            raise error

    lab.stop_at = fail
    with pytest.raises(type(error)):
        lab.migrate()
    assert failed == [step]
    lab.check("a")
    assert (lab.mac("a"), lab.mac("b")) == (mac, NOTHING)
    lab.migrate()
    lab.check("b")


def test_what_cannot_be_rolled_back_is_repaired_by_the_next_command(lab: Lab) -> None:
    """The target does not take the VM, and the source does not take it back at once."""
    mac = lab.mac("a")

    def fail(what: str) -> None:
        if what == "a: it moves to b" or what.startswith("a: set up"):
            raise VicinalError("broken", "mend it")

    lab.stop_at = fail
    with pytest.raises(VicinalError, match="cannot be moved to"):
        lab.migrate()
    assert lab.where() == {"a": []}
    lab.stop_at = lambda _: None
    repair_moves(journal_of(NAME))
    lab.check("a")
    assert lab.mac("a") == mac


@pytest.mark.parametrize("at", range(8))
def test_a_command_killed_at_any_step_is_repaired(lab: Lab, at: int) -> None:
    """The kill ends the command, and the agents hear no more from it."""
    mac = lab.mac("a")

    def die(_: str) -> None:
        if len(lab.log) >= at:
            raise Killed

    lab.stop_at = die
    if at < 7:
        with pytest.raises(Killed):
            lab.migrate()
        assert at == 0 or all_moves(journal_of(NAME).entries()), "it had not begun"
    else:
        lab.migrate()
    lab.hang_up()
    lab.stop_at = lambda _: None
    repair_moves(journal_of(NAME))
    there = next(iter(lab.where()))
    assert there == ("a" if at < 4 else "b")
    lab.check(there)
    assert [lab.mac(each) for each in "ab"] == ([mac, NOTHING] if there == "a" else [NOTHING, mac])


def test_who_has_none_to_give_is_told_before_anything_is_done(lab: Lab) -> None:
    other = lab.vfs("b")
    for card in other.cards():
        for each in card.vfs:
            if each.free:
                other.assign(each.address, owner="another")
    lab.log.clear()
    with pytest.raises(VicinalError, match="eth1 has no free VF for vm1"):
        lab.migrate()
    assert lab.log == []
    lab.check("a")


def test_cards_have_vfs_for_all_that_may_come(lab: Lab) -> None:
    for name in ("a", "b"):
        card = next(each for each in lab.vfs(name).cards() if each.driver == "igb")
        assert len(card.vfs) == 3
    assert [len(lab.owned(name)) for name in ("a", "b")] == [1, 0]
