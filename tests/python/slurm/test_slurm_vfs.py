"""Virtual functions of Slurm's jobs on fake cards, without a Slurm: given, kept, released."""

import fcntl
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_cards import ZERO, FakeHelper, FakeHost, fake_vfs, igb, mlx5

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs, vfio_node
from vicinal.host.vf.sysfs import read_records
from vicinal.integrations.slurm import gres, job_vfs
from vicinal.integrations.slurm.granted_vfs import GrantedVf
from vicinal.integrations.slurm.job_vfs import Asked, JobVfs, parse_gres

FIRST, SECOND = "0000:01:08.0", "0000:01:08.1"
INFINIBAND = "0000:02:08.0"


@dataclass
class Slurm:
    """A Slurm host with two fake cards, igb and mlx5, each with two virtual functions."""

    host: FakeHost
    vfs: Vfs
    jobs: JobVfs
    directory: Path

    def owners(self) -> dict[str, str]:
        records = read_records(self.host)["vfs"]
        return {address: record["owner"] for address, record in records.items()}

    def files(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}

    def variables(self, job: int) -> dict[str, str]:
        lines = (self.directory / f"vfs-{job}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def is_up(self, interface: str) -> bool:
        flags = (self.host.sysfs / "class/net" / interface / "flags").read_text()
        return bool(int(flags, 0) & 1)


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    host, vfs = fake_vfs(tmp_path, igb(), mlx5())
    for card in ("eth1", "ib0"):
        vfs.create(card, 2, owner="administrator")
    directory = tmp_path / "regions"
    return Slurm(host, vfs, JobVfs(directory, vfs), directory)


# --- Slurm's requests ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("vf:eth1(CNT:1)", [Asked(1, "eth1")]),
        ("gpu:a100(IDX:0-1),vf:eth1(CNT:1),vf:ib0(CNT:12)", [Asked(1, "eth1"), Asked(12, "ib0")]),
        ("vf(CNT:2)", [Asked(2)]),
        ("vf:2(IDX:0,2)", [Asked(2)]),
        ("vf:ib0:5(IDX:0-2,5-6),vfx(CNT:7)", [Asked(5, "ib0")]),
    ],
)
def test_what_a_job_has(words: str, asked: list[Asked]) -> None:
    assert parse_gres(words) == asked


@pytest.mark.parametrize(
    "words", ["", "gpu(CNT:1)", "vf", "vf:ib0", "vf:ib0(CNT:x)", "vf:ib0 (CNT:1)"]
)
def test_other_words_are_no_reason_to_give_nothing(words: str) -> None:
    with pytest.raises(VicinalError, match="names no GRES 'vf'"):
        parse_gres(words)


# --- given and released ------------------------------------------------------------------


def test_a_job_has_its_vfs_until_it_ends(slurm: Slurm) -> None:
    slurm.jobs.give(7, [Asked(1, "eth1"), Asked(1, "ib0")])
    assert slurm.owners() == {FIRST: "slurm-7", INFINIBAND: "slurm-7"}
    assert slurm.variables(7) == {
        "VICINAL_VFS": f"{FIRST},{INFINIBAND}",
        "VICINAL_VF_INTERFACES": "eth1v0",
        "VICINAL_VF_DEVICES": "mlx5_0v0",
    }
    assert slurm.is_up("eth1v0")
    assert slurm.vfs.find(INFINIBAND).settings["port_guid"] != ZERO
    assert slurm.vfs.find(INFINIBAND).ports[0].state == "ACTIVE"

    assert slurm.jobs.release(7) == []
    assert slurm.owners() == {}
    assert slurm.files() == set()
    assert not slurm.is_up("eth1v0")
    assert slurm.vfs.find(INFINIBAND).settings["port_guid"] == ZERO
    assert slurm.jobs.release(7) == []  # Slurm may call this several times
    assert slurm.files() == set()


def test_a_second_step_finds_them(slurm: Slurm) -> None:
    slurm.jobs.give(7, [Asked(1)])
    before = slurm.variables(7), list(slurm.host.calls)
    slurm.jobs.give(7, [Asked(1)])
    assert (slurm.variables(7), slurm.host.calls) == before


def test_two_jobs_have_different_ones(slurm: Slurm) -> None:
    slurm.jobs.give(7, [Asked(1, "eth1")])
    slurm.jobs.give(8, [Asked(1, "eth1")])
    assert slurm.owners() == {FIRST: "slurm-7", SECOND: "slurm-8"}
    slurm.jobs.release(7)
    assert slurm.owners() == {SECOND: "slurm-8"}
    assert slurm.is_up("eth1v1")


def test_without_a_card_any_that_is_free(slurm: Slurm) -> None:
    helper = FakeHelper(slurm.host)
    jobs = JobVfs(slurm.directory, Vfs(slurm.host, helper))
    jobs.give(7, [Asked(3)])
    assert list(slurm.owners()) == [FIRST, SECOND, INFINIBAND]
    assert jobs.release(7) == []
    assert helper.asked == ["assign", "release"]  # one start of the helper for all VFs


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (Asked(3, "eth1"), "eth1 has no free VF"),
        (Asked(1, "eth7"), "eth7"),
        (Asked(5), "has no free VF"),
    ],
)
def test_all_of_them_or_none(slurm: Slurm, asked: Asked, fault: str) -> None:
    with pytest.raises(VicinalError, match=rf"the SR-IOV VFs of job 7: .*{fault}"):
        slurm.jobs.give(7, [Asked(1, "ib0"), asked] if asked.card else [asked])
    assert slurm.owners() == {}
    assert slurm.files() == {"vfs-7.lock"}  # the epilog removes it
    slurm.jobs.release(7)
    assert slurm.files() == set()


def test_a_host_without_cards(tmp_path: Path) -> None:
    _host, vfs = fake_vfs(tmp_path)
    with pytest.raises(VicinalError, match="no card of this host has VFs"):
        JobVfs(tmp_path / "regions", vfs).give(7, [Asked(1)])


def test_an_interface_that_does_not_come_up(slurm: Slurm) -> None:
    (slurm.host.sysfs / "class/net/eth1v0").unlink()  # as if it were renamed at this moment
    with pytest.raises(VicinalError, match='Cannot find device "eth1v0"'):
        slurm.jobs.give(7, [Asked(1, "eth1")])
    assert "vfs-7" not in slurm.files()


def test_a_port_that_does_not_become_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_vfs, "_ACTIVE_SECONDS", 0.1)
    host, vfs = fake_vfs(tmp_path, mlx5(vf_state="1: DOWN"))
    vfs.create("ib0", 2, owner="administrator")
    jobs = JobVfs(tmp_path / "regions", vfs)
    with pytest.raises(VicinalError, match="did not become ACTIVE"):
        jobs.give(7, [Asked(2, "ib0")])
    assert read_records(host)["vfs"] == {}
    assert vfs.find(INFINIBAND).settings["port_guid"] == ZERO


def test_a_directory_that_others_write_to_is_not_used(slurm: Slurm) -> None:
    slurm.directory.mkdir()
    slurm.directory.chmod(0o777)
    with pytest.raises(VicinalError, match="is not a directory that only this user can write"):
        slurm.jobs.give(7, [Asked(1)])
    assert slurm.owners() == {}


# --- killed --------------------------------------------------------------------------------


def test_what_a_killed_command_left_is_the_job_s_first(slurm: Slurm) -> None:
    """The killed command had assigned one of two, and set it up. None is lost or taken twice."""
    slurm.vfs.assign(SECOND, owner="slurm-7")
    slurm.host.run("ip", "link", "set", "dev", "eth1v1", "up")
    slurm.jobs.give(7, [Asked(2, "eth1")])
    assert slurm.owners() == {SECOND: "slurm-7", FIRST: "slurm-7"}
    assert slurm.variables(7)["VICINAL_VF_INTERFACES"] == "eth1v1,eth1v0"
    slurm.jobs.release(7)
    assert slurm.owners() == {}


def test_who_is_at_work_is_waited_for(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_vfs, "_LOCK_SECONDS", 0.0)
    slurm.directory.mkdir(mode=0o755)
    lock = os.open(slurm.directory / "vfs-7.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for act in (lambda: slurm.jobs.give(7, [Asked(1)]), lambda: slurm.jobs.release(7)):
            with pytest.raises(VicinalError, match="another command is changing"):
                act()
    finally:
        os.close(lock)
    slurm.jobs.give(7, [Asked(1)])


def test_jobs_that_are_over_are_swept(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.jobs.give(7, [Asked(1, "eth1")])
    slurm.jobs.give(8, [Asked(1, "eth1")])
    slurm.vfs.assign("ib0", owner="slurm-9")  # the command was killed after this
    slurm.vfs.assign("ib0", owner="vicinal.demo")
    (slurm.directory / "vfs-10").touch()
    (slurm.directory / ".vfs-8.nodes.part").touch()
    (slurm.directory / "other").touch()
    monkeypatch.setattr(job_vfs, "active_jobs", lambda: {8, 11})
    assert slurm.jobs.sweep() == ([7, 9, 10], [])
    assert sorted(slurm.owners().values()) == ["slurm-8", "vicinal.demo"]
    left = {"vfs-8", "vfs-8.lock", ".vfs-8.nodes.part", "other"}
    assert slurm.files() == left


def test_nothing_is_swept_where_slurm_does_not_answer(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> set[int]:
        raise VicinalError("squeue does not list Slurm's jobs", "see")

    slurm.jobs.give(7, [Asked(1)])
    monkeypatch.setattr(job_vfs, "active_jobs", unknown)
    with pytest.raises(VicinalError, match="squeue does not list"):
        slurm.jobs.sweep()
    assert slurm.owners() == {FIRST: "slurm-7"}


def test_one_that_cannot_be_released_keeps_no_other(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A VM has the VF open through vfio-pci. The next sweep tries again."""
    slurm.jobs.give(7, [Asked(1, "eth1")])
    slurm.jobs.give(8, [Asked(1, "eth1")])
    (slurm.host.sysfs / "class/net/eth1v0").unlink()
    monkeypatch.setattr(job_vfs, "active_jobs", set)
    done, notes = slurm.jobs.sweep()
    assert done == [8]
    assert len(notes) == 1
    assert notes[0].startswith('job 7: `ip`: Cannot find device "eth1v0"')
    assert slurm.owners() == {FIRST: "slurm-7"}
    assert slurm.files() == {"vfs-7.lock"}


# --- for nodes -----------------------------------------------------------------------------


def grant(slurm: Slurm, *asked: Asked) -> list[GrantedVf]:
    """Give a job VFs for its nodes, whose card tags their frames with a VLAN."""
    for settings in slurm.host.cards["0000:01:00.0"].settings.values():
        settings["vlan"] = "7"
    slurm.jobs.give(7, asked or [Asked(1, "eth1")], for_nodes=True)
    lines = (slurm.directory / "vfs-7.nodes").read_text().splitlines()
    return [GrantedVf.parse(line) for line in lines]


def take_away(slurm: Slurm, interface: str) -> None:
    """Show a host's sysfs after an interface has moved into another network namespace."""
    interface_directory = slurm.host.device(FIRST) / "net" / interface
    for file in interface_directory.iterdir():
        file.unlink()
    interface_directory.rmdir()
    (slurm.host.sysfs / "class/net" / interface).unlink()


def test_the_card_bounds_what_a_node_s_vf_can(slurm: Slurm) -> None:
    before = {
        number: {**each} for number, each in slurm.host.cards["0000:01:00.0"].settings.items()
    }
    slurm.host.files(slurm.host.device(INFINIBAND) / "infiniband_verbs/uverbs0", dev="231:192")
    ethernet, infiniband = grant(slurm, Asked(1, "eth1"), Asked(1, "ib0"))
    settings = slurm.vfs.find(FIRST).settings
    cards = ("0000:01:00.0", "eth1")
    assert ethernet == GrantedVf(FIRST, "ethernet", cards, (), (), "igbvf", settings["mac"])
    assert (infiniband.devices, infiniband.files) == (("mlx5_0v0",), ("uverbs0",))
    assert (infiniband.driver, infiniband.mac) == ("mlx5_core", "")
    assert set(infiniband.cards) == {"0000:02:00.0", "ib0", "mlx5_0"}
    assert (settings["spoofchk"], settings["trust"], settings["vlan"]) == ("on", "off", "7")
    assert settings["mac"].startswith("02:")
    assert not slurm.is_up("eth1v0")
    slurm.jobs.release(7)
    assert slurm.vfs.find(FIRST).settings == before[0] | {"vlan": "7"}
    assert slurm.files() == set()


def test_a_user_may_open_what_vms_have_until_the_end(slurm: Slurm) -> None:
    grant(slurm, Asked(2, "eth1"))
    slurm.jobs.grant(7, 1000)
    slurm.jobs.grant(7, 1000)  # as if the VMs had ended and were made anew
    groups = [slurm.vfs.find(each).group for each in (FIRST, SECOND)]
    for vf, group in zip((FIRST, SECOND), groups, strict=True):
        assert slurm.vfs.find(vf).driver == "vfio-pci"
        assert [user for name, user in slurm.host.given if name == group][-1] == 1000
    slurm.jobs.release(7)
    for vf, group in zip((FIRST, SECOND), groups, strict=True):
        assert slurm.vfs.find(vf).driver == "igbvf"
        assert [user for name, user in slurm.host.given if name == group][-1] == 0
    assert slurm.files() == set()


def test_a_vf_that_is_not_alone_in_its_group(slurm: Slurm) -> None:
    """Access to the group would include the other VFs in it, even those without a driver."""
    grant(slurm)
    members = slurm.host.device(FIRST) / "iommu_group/devices"
    (members / SECOND).symlink_to(slurm.host.device(SECOND))
    slurm.host.write(slurm.host.device(SECOND) / "driver/unbind", SECOND)
    with pytest.raises(VicinalError, match=f"in one IOMMU group with {SECOND}, which goes with"):
        slurm.jobs.grant(7, 1000)
    assert slurm.vfs.find(FIRST).driver == "igbvf"
    assert slurm.host.given == []


def test_a_group_that_somebody_holds_open_unseen(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job keeps the VF if its holder cannot be found, as with a descriptor in transit."""
    grant(slurm)
    slurm.jobs.grant(7, 1000)
    node = vfio_node(slurm.vfs.find(FIRST), slurm.host)
    monkeypatch.setattr("vicinal.integrations.slurm.job_vfs._CLOSE_SECONDS", 0.1)
    node.unlink()
    node.mkdir()  # opening fails, as it does with EBUSY for a group that is open
    with pytest.raises(VicinalError, match=f"a process still holds {FIRST} open through {node}"):
        slurm.jobs.release(7)
    assert slurm.vfs.find(FIRST).owner == "slurm-7"
    assert slurm.host.given[-1] == (node.name, 0)
    node.rmdir()
    node.touch()
    slurm.jobs.release(7)
    assert slurm.vfs.find(FIRST).driver == "igbvf"


def test_only_processes_of_the_job_s_user_are_ended(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of another user, such as a daemon that was given the descriptor, is not killed."""
    user = os.geteuid()
    for owner, status in ((user + 1, None), (user, -signal.SIGKILL)):
        with subprocess.Popen(["sleep", "60"]) as holder:
            proc_directory = Path(f"/proc/{holder.pid}")
            monkeypatch.setattr(
                job_vfs,
                "holding",
                lambda *_, proc_directory=proc_directory: [proc_directory],
            )
            grant(slurm)
            slurm.jobs.grant(7, owner)
            slurm.jobs.release(7)
            assert slurm.owners() == {}
            try:
                assert holder.wait(0.5 if status is None else 30) == status
            except subprocess.TimeoutExpired:
                assert status is None
            holder.kill()


def test_an_address_that_an_administrator_set_stays(slurm: Slurm) -> None:
    own = slurm.host.cards["0000:01:00.0"].settings[0]
    own |= {"mac": "52:54:00:00:00:07", "trust": "on", "spoofchk": "off"}
    grant(slurm)
    settings = slurm.vfs.find(FIRST).settings
    assert (settings["mac"], settings["trust"]) == ("52:54:00:00:00:07", "off")
    slurm.jobs.release(7)
    settings = slurm.vfs.find(FIRST).settings
    assert (settings["mac"], settings["trust"]) == ("52:54:00:00:00:07", "on")


def test_one_in_no_vlan_is_not_granted(slurm: Slurm) -> None:
    with pytest.raises(VicinalError, match="is in no VLAN of the card, and"):
        slurm.jobs.give(7, [Asked(1, "eth1")], for_nodes=True)
    assert slurm.owners() == {}


@pytest.mark.parametrize("setting", ["spoofchk", "trust"])
def test_a_card_that_does_not_bound_them_grants_none(slurm: Slurm, setting: str) -> None:
    slurm.host.refused.add(setting)
    with pytest.raises(VicinalError, match="Operation not supported"):
        grant(slurm)
    assert slurm.owners() == {}
    slurm.host.refused.clear()
    slurm.host.ignored.add(setting)
    slurm.host.cards["0000:01:00.0"].settings[0] |= {"trust": "on", "spoofchk": "off"}
    with pytest.raises(VicinalError, match=f"took {setting}"):
        grant(slurm)
    assert slurm.owners() == {}


def test_an_interface_is_released_from_any_network(slurm: Slurm) -> None:
    grant(slurm)
    take_away(slurm, "eth1v0")
    assert slurm.jobs.release(7) == []
    assert slurm.owners() == {}
    vf = slurm.vfs.find(FIRST)
    assert (vf.driver, vf.interfaces) == ("igbvf", ("eth1v0",))
    assert vf.settings["mac"] == "00:00:00:00:00:00"


def test_whoever_was_killed_after_recalling_one(slurm: Slurm) -> None:
    grant(slurm)
    take_away(slurm, "eth1v0")
    slurm.vfs.recall(FIRST, owner="slurm-7")
    assert slurm.vfs.find(FIRST).driver == ""
    assert slurm.jobs.release(7) == []
    assert slurm.vfs.find(FIRST).driver == "igbvf"
    assert slurm.owners() == {}


def test_only_its_owner_recalls_one(slurm: Slurm) -> None:
    grant(slurm)
    with pytest.raises(VicinalError, match="belongs to slurm-7, not to other"):
        slurm.vfs.recall(FIRST, owner="other")
    with pytest.raises(VicinalError, match="is not assigned"):
        slurm.vfs.recall(SECOND, owner="slurm-7")


# --- what Slurm is told --------------------------------------------------------------------


def test_the_lines_for_an_administrator(slurm: Slurm) -> None:
    counts = gres.counted(slurm.vfs)
    assert counts == {"eth1": 2, "ib0": 2}
    said = list(gres.lines("node0", counts, Path("/etc/slurm/slurm.conf")))
    assert "    NodeName=node0 Name=vf Type=ib0 Count=2" in said
    assert "    Gres=vf:eth1:2,vf:ib0:2" in said


def test_a_host_that_has_none_is_told_how_to_make_some(tmp_path: Path) -> None:
    _host, vfs = fake_vfs(tmp_path, igb())
    counts = gres.counted(vfs)
    assert counts == {}
    [said] = gres.lines("node0", counts, Path("/etc/slurm/slurm.conf"))
    assert said == "node0 has no SR-IOV VFs: create some with `vicinal vf create CARD N`"
