"""Several SR-IOV VFs at once: one start of the privileged helper, and all or none change.

The tests use fake cards (fake_cards.py) and all code of `vicinal vf` and its helper.
"""

import json
from pathlib import Path

import pytest
from fake_cards import FakeHelper, FakeHost, fake_vfs, igb, mlx5

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Chosen, Vfs
from vicinal.host.vf.settings import Settings

ADDRESSES = [f"0000:01:08.{number}" for number in range(3)]
FIRST, SECOND, THIRD = ADDRESSES
MACS = [f"52:54:00:aa:bb:0{number}" for number in range(3)]
WANTED: list[tuple[str, Chosen]] = [
    (address, Settings(mac=mac, vlan=7)) for address, mac in zip(ADDRESSES, MACS, strict=True)
]


class Trial:
    def __init__(self, directory: Path, vfs: int = 3) -> None:
        self.card = igb()
        self.host, _ = fake_vfs(directory, self.card)
        self.helper = FakeHelper(self.host)
        self.vfs = Vfs(self.host, self.helper)
        self.vfs.create("eth1", vfs, owner="cloud")
        self.before = self.state()
        self.helper.asked.clear()

    def state(self) -> list[object]:
        """The visible state of all VFs."""
        settings = [dict(self.card.settings[number]) for number in sorted(self.card.settings)]
        return [*self.vfs.cards()[0].vfs, *settings]

    def owners(self) -> dict[str, str]:
        records = json.loads((self.host.records / "records.json").read_text())["vfs"]
        return {address: record["owner"] for address, record in records.items()}


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_several_come_and_go_by_one_start_each(trial: Trial) -> None:
    given = trial.vfs.assign_all(WANTED, owner="demo", vfio=True)
    assert [each.address for each in given] == ADDRESSES
    assert [trial.card.settings[number]["mac"] for number in range(3)] == MACS
    assert {(each.driver, each.owner) for each in given} == {("vfio-pci", "demo")}
    assert trial.vfs.release([], owner="demo") == []
    assert trial.helper.asked == ["assign", "release"]
    assert trial.state() == trial.before


def test_no_vfs_are_no_start(trial: Trial) -> None:
    assert trial.vfs.assign_all([], owner="demo") == []
    assert trial.vfs.release([], owner="demo") == []
    assert trial.helper.asked == []


def test_all_are_written_down_before_one_is_touched(trial: Trial) -> None:
    seen: list[set[str]] = []

    class Watched(FakeHost):
        def write(self, path: Path, text: str) -> None:
            seen.append(set(trial.owners()))
            super().write(path, text)

        def run(self, name: str, *arguments: str) -> str:
            if "set" in arguments:
                seen.append(set(trial.owners()))
            return super().run(name, *arguments)

    trial.host.__class__ = Watched
    trial.vfs.assign_all(WANTED, owner="demo", vfio=True)
    assert len(seen) > 9
    assert all(each == set(ADDRESSES) for each in seen)


def test_what_fails_last_takes_all_back_from_the_last_to_the_first(trial: Trial) -> None:
    """The helper itself undoes the changes, without a second start."""
    trial.host.refused = {"trust"}
    wanted = [*WANTED[:2], (THIRD, Settings(mac=MACS[2], trust=True))]
    trial.host.calls.clear()
    with pytest.raises(VicinalError, match=r"Operation not supported \(trust\)"):
        trial.vfs.assign_all(wanted, owner="demo", vfio=True)
    assert trial.helper.asked == ["assign"]
    assert (trial.state(), trial.owners()) == (trial.before, {})
    told = [call[6] for call in trial.host.calls if call[1:3] == ["link", "set"]]
    assert list(dict.fromkeys(told)) == ["0", "1", "2"]
    assert list(dict.fromkeys(reversed(told))) == ["0", "1", "2"]


def test_one_that_was_the_owners_stays_his(trial: Trial) -> None:
    trial.vfs.assign(SECOND, owner="demo")
    trial.host.refused = {"trust"}
    wanted = [*WANTED[:2], (THIRD, Settings(trust=True))]
    with pytest.raises(VicinalError, match="Operation not supported"):
        trial.vfs.assign_all(wanted, owner="demo")
    assert trial.owners() == {SECOND: "demo"}


def test_what_cannot_be_undone_is_told_and_the_rest_is_free(trial: Trial) -> None:
    class Failing(FakeHost):
        def write(self, path: Path, text: str) -> None:
            if path.parent.name == SECOND and path.name == "driver_override" and text == "\n":
                raise OSError(5, "Input/output error")
            super().write(path, text)

    trial.host.__class__ = Failing
    trial.host.refused = {"trust"}
    wanted = [*WANTED[:2], (THIRD, Settings(trust=True))]
    with pytest.raises(VicinalError, match=r"not supported .*; and undoing it failed \(.*output"):
        trial.vfs.assign_all(wanted, owner="demo", vfio=True)
    trial.host.__class__ = FakeHost
    assert trial.owners() == {SECOND: "demo"}
    trial.vfs.release([SECOND])
    assert trial.state() == trial.before


def test_one_that_cannot_be_released_keeps_no_other(trial: Trial) -> None:
    trial.vfs.assign_all(WANTED, owner="demo", vfio=True)
    for address in (FIRST, SECOND):
        trial.host.files(trial.host.device(address), enable="1")  # as if QEMU had the device open
    with pytest.raises(VicinalError, match=rf"{FIRST} is in use: .*; {SECOND} is in use: "):
        trial.vfs.release([], owner="demo")
    assert trial.owners() == {FIRST: "demo", SECOND: "demo"}


def test_those_of_several_owners_are_released_by_their_names(trial: Trial) -> None:
    for address, owner in ((FIRST, "demo"), (SECOND, "other"), (THIRD, "demo")):
        trial.vfs.assign(address, owner=owner)
    assert trial.vfs.release(ADDRESSES) == []
    assert trial.helper.asked[3:] == ["release", "release"]
    assert trial.state() == trial.before


def test_of_a_card_each_is_another(trial: Trial) -> None:
    given = trial.vfs.assign_all([("eth1", None), (SECOND, None)], owner="demo")
    assert [each.address for each in given] == [FIRST, SECOND]
    with pytest.raises(VicinalError, match=f"{THIRD} was named twice"):
        trial.vfs.assign_all([("eth1", None), (THIRD, None)], owner="demo")
    with pytest.raises(VicinalError, match=f"no free VF .*{THIRD}: assigned to demo"):
        trial.vfs.assign_all([("eth1", None)] * 2, owner="demo")
    assert set(trial.owners()) == {FIRST, SECOND}


@pytest.mark.parametrize("owner", ["demo", "other"])
def test_where_another_command_takes_one_others_are_chosen(trial: Trial, owner: str) -> None:
    class Slow(FakeHelper):
        def __call__(self, operation: str, **fields: object) -> dict[str, object]:
            if not self.asked:  # the other command chooses first
                trial.vfs.assign("eth1", owner=owner)
            return super().__call__(operation, **fields)

    slow = Slow(trial.host)
    given = Vfs(trial.host, slow).assign_all([("eth1", None)] * 2, owner="demo")
    assert [each.address for each in given] == [SECOND, THIRD]
    assert trial.owners() == {FIRST: owner, SECOND: "demo", THIRD: "demo"}
    assert slow.asked == ["assign", "assign"]


def test_an_address_is_not_given_twice(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    same = [(address, Settings(mac=MACS[0])) for address in (FIRST, SECOND)]
    with pytest.raises(VicinalError, match=f"{MACS[0]} is requested twice, for {SECOND}"):
        trial.vfs.assign_all(same, owner="demo", vfio=True)
    _, vfs = fake_vfs(tmp_path / "ib", mlx5())
    guid = "00:11:22:33:44:55:66:77"
    vfs.create("ib0", 2, owner="cloud")
    with pytest.raises(VicinalError, match=f"{guid} is requested twice"):
        vfs.assign_all([("ib0", Settings(port_guid=guid))] * 2, owner="demo")
    assert trial.helper.asked == []


def test_ports_are_waited_for_together(tmp_path: Path) -> None:
    _, vfs = fake_vfs(tmp_path, mlx5())
    vfs.create("ib0", 2, owner="cloud")
    given = vfs.assign_all([("ib0", None)] * 2, owner="demo", wait=5)
    assert [each.ports[0].state for each in given] == ["ACTIVE"] * 2
    assert len({each.settings["port_guid"] for each in given}) == 2
    host, vfs = fake_vfs(tmp_path / "down", mlx5(vf_state="1: DOWN"))
    vfs.create("ib0", 2, owner="cloud")
    with pytest.raises(VicinalError, match=r"did not become ACTIVE within 0\.1 s"):
        vfs.assign_all([("ib0", None)] * 2, owner="demo", wait=0.1)
    assert json.loads((host.records / "records.json").read_text())["vfs"] == {}
