"""Virtual functions of a cluster on fake cards: planned, made, given, removed (fake_cards.py)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_cards import FakeHelper, FakeHost, fake_vfs, igb, mlx4, mlx5

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.plan.applying import apply, take_away
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Plan, make_plan, removal
from vicinal.cluster.plan.resource import Condition, Resource
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.vfs import vf_resources
from vicinal.cluster.resources.vms import VmResource
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_address, owner_of

FIRST, SECOND = "0000:01:08.0", "0000:01:08.1"
CARD = "0000:01:00.0"


class Trial:
    """A cluster's virtual functions on a fake host, with a journal."""

    def __init__(self, directory: Path, vfs: Vfs) -> None:
        self.directory = directory
        self.vfs = vfs
        self.journal = Journal(directory / "journal")

    def wanted(self, network: str, count: int = 2, name: str = "lab") -> list[Resource]:
        file = self.directory / "cluster.yaml"
        file.write_text(
            f"name: {name}\nnodes: [{{name: n, count: {count}, network: {{{network}}}}}]\n"
        )
        cluster = read_cluster(file)
        stays = {node.name: True for node in cluster.nodes}
        return vf_resources(cluster, self.vfs, stays=stays)

    def plan(self, network: str, count: int = 2) -> Plan:
        wanted = self.wanted(network, count)
        there = self.there(wanted)
        return make_plan(wanted, self.journal.entries(), there)

    def there(self, wanted: list[Resource]) -> dict[str, Resource]:
        """The resources in the journal, as another command would find them."""
        known = {resource.key: resource for resource in wanted}
        found = {}
        for key, entry in self.journal.entries().items():
            kind = type(known[key])
            recorded = kind.from_settings(entry.settings)  # type: ignore[attr-defined]
            found[key] = replace(recorded, vfs=self.vfs)
        return found

    def up(self, network: str, count: int = 2) -> Plan:
        plan = self.plan(network, count)
        apply(plan, self.journal)
        return plan

    def down(self, wanted: list[Resource]) -> None:
        take_away(removal(self.journal.entries(), self.there(wanted)), self.journal)

    def owners(self) -> dict[str, str]:
        cards = self.vfs.cards()
        return {each.address: each.owner for card in cards for each in card.vfs}


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "host", igb(), mlx5(), mlx4())


@pytest.fixture
def trial(tmp_path: Path, host: FakeHost) -> Trial:
    return Trial(tmp_path, Vfs(host, FakeHelper(host)))


def told(plan: Plan) -> list[str]:
    return [f"{step.action} {step.resource.key}" for step in plan.steps]


def refused(trial: Trial, network: str, said: str, count: int = 2) -> None:
    with pytest.raises(VicinalError) as caught:
        trial.plan(network, count)
    assert said in str(caught.value)


def test_up_and_down(trial: Trial, host: FakeHost) -> None:
    network = "vf: {card: eth1, mac: '52:54:00:00:00:09', trust: true, max_rate: 100}"
    made = trial.up(network)
    assert told(made) == [f"create vfs/{CARD}", "create vf/n0", "create vf/n1"]
    assert trial.owners() == {FIRST: "vicinal.lab.n0", SECOND: "vicinal.lab.n1"}
    assert assigned_address(trial.vfs, owner_of("lab", "n1")) == SECOND
    card = host.cards[CARD]
    assert [card.settings[n]["mac"][-2:] for n in (0, 1)] == ["09", "0a"]
    assert (card.settings[1]["trust"], card.settings[1]["max_tx_rate"]) == ("on", "100")
    assert not trial.plan(network).changes
    json.dumps([dict(step.resource.settings) for step in made.steps])
    trial.down(trial.wanted(network))
    assert trial.owners() == {}
    assert trial.journal.entries() == {}
    records = json.loads((host.records / "records.json").read_text())
    assert records == {"physical": {}, "vfs": {}}


def test_one_more_node_has_the_card_make_all_anew(trial: Trial) -> None:
    network = "vf: {card: eth1}"
    trial.up(network)
    plan = trial.up(network, 3)
    assert told(plan)[:3] == [
        "remove vf/n1",
        "remove vf/n0",
        f"remove vfs/{CARD}",
    ]
    assert sorted(trial.owners().values()) == [f"vicinal.lab.n{n}" for n in range(3)]


def test_addresses_are_each_node_s_own_and_stay(trial: Trial, host: FakeHost) -> None:
    trial.up("vf: {card: eth1}")
    first = [host.cards[CARD].settings[n]["mac"] for n in (0, 1)]
    assert all(mac.startswith("02:") for mac in first)
    assert len(set(first)) == 2
    trial.down(trial.wanted("vf: {card: eth1}"))
    trial.up("vf: {card: eth1}")
    assert [host.cards[CARD].settings[n]["mac"] for n in (0, 1)] == first


def test_guids_are_each_node_s_own(trial: Trial, host: FakeHost) -> None:
    trial.up("vf: {card: mlx5_0}")
    sriov = host.device("0000:02:00.0") / "sriov"
    ports = [host.read(sriov / str(n) / "port") for n in (0, 1)]
    assert all(guid.startswith("02:") for guid in ports)
    assert len(set(ports)) == 2
    assert [host.read(sriov / str(n) / "node") for n in (0, 1)] == ports
    trial.down(trial.wanted("vf: {card: mlx5_0}"))
    trial.up("vf: {card: mlx5_0, guid: '02:00:00:00:00:00:00:ff'}")
    assert [host.read(sriov / str(n) / "port")[-5:] for n in (0, 1)] == ["00:ff", "01:00"]


def test_an_mlx4_card_has_port_guids_alone(trial: Trial, host: FakeHost) -> None:
    trial.up("vf: {card: mlx4_0, guid: '02:00:00:00:00:00:00:01', pkey: 0x8001}", 1)
    iov = host.device("0000:03:00.0") / "infiniband/mlx4_0/iov"
    assert host.read(iov / "ports/1/admin_guids/1") == "0x0200000000000001"
    assert host.read(iov / "0000:03:08.0/ports/1/pkey_idx/0") == "1"


def test_vfs_that_are_there_are_used_and_stay(trial: Trial) -> None:
    trial.vfs.create("eth1", 3, owner="admin")
    plan = trial.up("vf: {card: eth1}")
    assert told(plan) == ["create vf/n0", "create vf/n1"]
    assert not trial.plan("vf: {card: eth1}").changes
    refused(trial, "vf: {card: eth1}", "needs 4 VFs of 0000:01:00.0, which has 3", 4)
    trial.down(trial.wanted("vf: {card: eth1}"))
    assert list(trial.owners().values()) == ["", "", ""]


def test_a_vf_in_use_is_left_alone(trial: Trial, host: FakeHost) -> None:
    trial.vfs.create("eth1", 2, owner="admin")
    host.files(host.device(FIRST) / "net/eth1v0", flags="0x1003")
    said = "needs 2 VFs of 0000:01:00.0, which has 1 that are free (0000:01:08.0: its"
    refused(trial, "vf: {card: eth1}", f"{said} interface eth1v0 is up)")
    trial.up("vf: {card: eth1}", 1)
    assert trial.owners() == {FIRST: "", SECOND: "vicinal.lab.n"}


@pytest.mark.parametrize(
    ("network", "count", "said"),
    [
        ("vf: {card: eth7}", 2, "eth7 is no card that can have virtual functions; this host"),
        ("vf: {card: eth1}", 5, "lab needs 5 VFs of 0000:01:00.0, whose firmware al"),
        ("vf: {card: eth1, guid: '02:00:00:00:00:00:00:01'}", 1, "is an Ethernet card, and"),
        ("vf: {card: mlx5_0, vlan: 7}", 1, "is an InfiniBand card, and --vlan cannot be set"),
        ("vf: {card: eth1, qos: 3}", 1, "a priority was given without a VLAN"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_done(
    trial: Trial, host: FakeHost, network: str, count: int, said: str
) -> None:
    refused(trial, network, said, count)
    assert (host.writes, [call for call in host.calls if "show" not in call]) == ([], [])


def test_firmware_that_makes_fewer_is_rolled_back(tmp_path: Path) -> None:
    _, vfs = fake_vfs(tmp_path / "host", replace(igb(), made_at_most=1))
    trial = Trial(tmp_path, vfs)
    with pytest.raises(VicinalError, match="without an error 1 came"):
        trial.up("vf: {card: eth1}")
    assert (trial.owners(), trial.journal.entries()) == ({}, {})


class Killed(BaseException):
    """Ends the command as SIGKILL does: nothing is rolled back."""


@pytest.mark.parametrize("next_command", ["up", "down"])
@pytest.mark.parametrize("at", range(2, 7))
def test_a_command_killed_at_any_step_is_repaired(
    trial: Trial, host: FakeHost, at: int, next_command: str
) -> None:
    """The command dies before a step of the helper, or after the step but before the answer."""
    network = "vf: {card: eth1, trust: true}"
    asked = 0

    class Dying(FakeHelper):
        def __call__(self, operation: str, **fields: object) -> dict[str, object]:
            nonlocal asked
            asked += 1
            if asked * 2 > at:  # from here on the helper does nothing, not even to roll back
                raise Killed
            answer = super().__call__(operation, **fields)
            if asked * 2 + 1 > at:
                raise Killed
            return answer

    kill(trial, Vfs(host, Dying(host)), network)
    if next_command == "up":
        trial.up(network)
        wanted = trial.wanted(network)
        assert all(each.observe().condition is Condition.READY for each in wanted)
        assert trial.owners() == {FIRST: "vicinal.lab.n0", SECOND: "vicinal.lab.n1"}
    trial.down(trial.wanted(network))
    assert trial.owners() == {}
    records = host.records / "records.json"
    if records.exists():
        assert json.loads(records.read_text()) == {"physical": {}, "vfs": {}}


def kill(trial: Trial, dying: Vfs, network: str) -> None:
    """Do what `up` does until its process is killed. Only what it has written remains."""
    alive, trial.vfs = trial.vfs, dying
    plan = trial.plan(network)
    try:
        for step in plan.changes:
            trial.journal.write(step.resource, Event.BEGUN)
            step.resource.create()
            trial.journal.write(step.resource, Event.MADE)
    except Killed:
        pass
    else:
        raise AssertionError("it was not killed")
    trial.vfs = alive


def test_a_helper_killed_before_it_made_vfs_is_repaired(trial: Trial, host: FakeHost) -> None:
    trial.up("vf: {card: eth1}")
    trial.down(trial.wanted("vf: {card: eth1}"))
    file = host.records / "records.json"
    made = {CARD: {"owner": "vicinal.lab", "user": 0}}
    file.write_text(json.dumps({"physical": made, "vfs": {}}))
    (card, *_) = trial.wanted("vf: {card: eth1}")
    trial.journal.write(card, Event.BEGUN)
    trial.down([card])
    assert json.loads(file.read_text()) == {"physical": {}, "vfs": {}}
    trial.vfs.create("eth1", 1, owner="another")


VMS = """\
name: lab
hypervisor: qemu:///{mode}
nodes:
  - {{name: vm, backend: vm, count: 2, network: {{{network}}}}}
region: none
"""


def vms(trial: Trial, network: str, mode: str = "system") -> list[Resource]:
    file = trial.directory / "cluster.yaml"
    file.write_text(VMS.format(network=network, mode=mode))
    return desired_resources(read_cluster(file), [], [], trial.vfs)


def test_vms_get_vfs(trial: Trial, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.cluster.resources.vms.Vfs", lambda: trial.vfs)
    wanted = {each.key: each for each in vms(trial, "vf: {card: mlx5_0}")}
    assert list(wanted)[:3] == ["vfs/0000:02:00.0", "vf/vm0", "vf/vm1"]
    vm = wanted["vm/vm1"]
    assert isinstance(vm, VmResource)
    assert "vf/vm1" in vm.needs
    with pytest.raises(VicinalError, match=r"vicinal\.lab\.vm1 has 0 VFs, and needs one"):
        vm.devices()
    # Ports of such virtual functions come up in the guests, so the host does not wait for them.
    host.cards["0000:02:00.0"].vf_state = "1: DOWN"
    for key in list(wanted)[:3]:
        wanted[key].create()
    assert [each.address for each in vm.devices()] == ["0000:02:08.1"]


def test_vms_get_whole_cards(trial: Trial, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.cluster.resources.vms.Vfs", lambda: trial.vfs)
    resources = vms(trial, f"device: ['{CARD}', '0000:09:00.0']")
    found = [each for each in resources if isinstance(each, VmResource)]
    assert [each.address for each in found[0].devices()] == [CARD]
    with pytest.raises(VicinalError, match=r"0000:09:00\.0 is no network card of this host"):
        found[1].devices()
    host.files(host.device(CARD) / "net/eth1", flags="0x1003")
    with pytest.raises(VicinalError, match="is in use: its interface eth1 is up"):
        found[0].devices()
    host.files(host.device(CARD) / "net/eth1", flags="0x1002")
    trial.vfs.create("eth1", 1, owner="admin")
    with pytest.raises(VicinalError, match="has 1 virtual functions here"):
        found[0].devices()


def test_a_session_gives_no_devices_away(trial: Trial) -> None:
    with pytest.raises(VicinalError, match="qemu:///session may not assign it"):
        vms(trial, "vf: {card: eth1}", "session")


def test_only_root_moves_interfaces_into_containers(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = trial.directory / "cluster.yaml"
    file.write_text("name: lab\nnodes: [{name: n, network: {vf: {card: eth1}}}]\n")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(VicinalError, match="only root can move a network interface into the"):
        desired_resources(read_cluster(file), [], [], trial.vfs)


def test_a_guest_sets_up_its_own_address(trial: Trial) -> None:
    with pytest.raises(VicinalError, match="their guests set up the device themselves"):
        vms(trial, "vf: {card: eth1}, address: 10.1.0.1/24")
