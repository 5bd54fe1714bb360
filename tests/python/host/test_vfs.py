"""SR-IOV VFs: created, assigned, released and removed, on fake cards (fake_cards.py).

The code is all of `vicinal vf` with its privileged helper; only the kernel is a fake.
"""

import errno
import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fake_cards import FakeCard, FakeHelper, FakeHost, fake_vfs, igb, mlx4, mlx5

from vicinal.base.errors import VicinalError
from vicinal.base.signals import Ended
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.settings import Settings, parse_guid, parse_mac

FIRST, SECOND = "0000:01:08.0", "0000:01:08.1"
MAC = "52:54:00:aa:bb:01"
GUID = "00:11:22:33:44:55:66:77"


def records(host: FakeHost) -> dict[str, dict[str, Any]]:
    text = (host.records / "records.json").read_text()
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def refusal(of: str) -> "pytest.RaisesExc[VicinalError]":
    return pytest.raises(VicinalError, match=of)


def test_a_card_without_vfs_is_listed_and_cannot_be_assigned_of(tmp_path: Path) -> None:
    _, vfs = fake_vfs(tmp_path, igb())
    (card,) = vfs.cards()
    assert (card.kind, card.most, card.vfs) == ("ethernet", 4, ())
    with refusal("eth1 has no virtual functions: create VFs first"):
        vfs.assign("eth1", owner="demo")
    with refusal("eth7 is no card that can have virtual functions; this host has 0000:01:00.0"):
        vfs.create("eth7", 1, owner="demo")


def test_vfs_are_made_and_read_back(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    card = vfs.create("eth1", 2, owner="demo")
    assert [vf.address for vf in card.vfs] == [FIRST, SECOND]
    assert card.owner == "demo"
    first = card.vfs[0]
    assert (first.driver, first.group, first.interfaces) == ("igbvf", "20", ("eth1v0",))
    assert first.free
    assert json.loads(json.dumps(asdict(card)))["vfs"][1]["number"] == 1
    # The same call again changes nothing.
    writes = len(host.writes)
    vfs.create("eth1", 2, owner="demo")
    assert len(host.writes) == writes
    # For another number, the kernel requires 0 first.
    vfs.create("eth1", 3, owner="demo")
    assert [text for _, text in host.writes[writes:]] == ["0", "3"]
    assert vfs.remove("0000:01:00.0") == 3
    assert records(host) == {"physical": {}, "vfs": {}}


def test_more_than_the_firmware_allows_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    with refusal("5 VFs were asked of 0000:01:00.0, whose firmware allows 4"):
        vfs.create("eth1", 5, owner="demo")
    assert host.writes == []


def test_a_silent_limit_of_the_firmware_is_noticed_and_undone(tmp_path: Path) -> None:
    card = igb()
    card.made_at_most = 1
    host, vfs = fake_vfs(tmp_path, card)
    with refusal("3 VFs were asked of .* and without an error 1 came; now there are"):
        vfs.create("eth1", 3, owner="demo")
    assert vfs.cards()[0].vfs == ()
    assert records(host)["physical"] == {}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EBUSY, "device or resource busy.*in use"),
        (errno.ENOENT, "no such file.*num_vfs"),
        (errno.ENOMEM, "cannot allocate memory.*pci=realloc"),
    ],
)
def test_what_the_kernel_refuses_is_explained(tmp_path: Path, number: int, said: str) -> None:
    card = igb()
    card.error = number
    host, vfs = fake_vfs(tmp_path, card)
    with refusal(said):
        vfs.create("eth1", 2, owner="demo")
    assert records(host)["physical"] == {}


def test_only_what_was_set_is_told_to_the_card(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 2, owner="demo")
    vfs.assign(FIRST, owner="demo", settings=Settings(mac=MAC, spoof_check=False, vlan=7))
    told = [call[5:] for call in host.calls if call[1:3] == ["link", "set"]]
    assert told == [
        ["vf", "0", "mac", MAC],
        ["vf", "0", "vlan", "7"],
        ["vf", "0", "spoofchk", "off"],
    ]
    # The driver reads the address only when it is bound, so the VF was bound again.
    assert host.read(host.sysfs / "class/net/eth1v0/address") == MAC
    host.calls.clear()
    vfs.assign(SECOND, owner="demo")
    assert [call for call in host.calls if "show" not in call] == []


def test_a_released_vf_is_as_it_was(tmp_path: Path) -> None:
    card = igb()
    host, vfs = fake_vfs(tmp_path, card)
    vfs.create("eth1", 2, owner="demo")
    before = dict(card.settings[0])
    wanted = Settings(mac=MAC, spoof_check=False, trust=True, vlan=9, max_rate=100, min_rate=10)
    given = vfs.assign("eth1", owner="demo", settings=wanted, vfio=True)
    assert (given.address, given.driver, given.owner) == (FIRST, "vfio-pci", "demo")
    assert card.settings[0] != before
    assert vfs.release([], owner="demo") == []
    assert card.settings[0] == before
    vf = vfs.find(FIRST)
    assert (vf.driver, vf.owner, vf.interfaces) == ("igbvf", "", ("eth1v0",))
    assert host.read(host.device(FIRST) / "driver_override") == ""


def put_on_vfio(host: FakeHost, vf: str) -> Path:
    """Bind a VF to vfio-pci as driverctl does; returns the file of its VFIO group."""
    host.write(host.device(vf) / "driver_override", "vfio-pci\n")
    host.write(host.device(vf) / "driver/unbind", vf)
    host.write(host.sysfs / "bus/pci/drivers_probe", vf)
    return host.groups / host.link(host.device(vf) / "iommu_group")


def test_what_was_on_vfio_goes_back_to_it(tmp_path: Path) -> None:
    card = igb()
    host, vfs = fake_vfs(tmp_path, card)
    vfs.create("eth1", 2, owner="demo")
    put_on_vfio(host, FIRST)
    for vfio in (True, False):
        vfs.assign(FIRST, owner="demo", settings=Settings(mac=MAC), vfio=vfio)
        assert vfs.release([], owner="demo") == []
        assert vfs.find(FIRST).driver == "vfio-pci"
        assert host.read(host.device(FIRST) / "driver_override") == "vfio-pci"


@pytest.mark.parametrize("on_vfio", [True, False])
def test_rates_alone_leave_a_vf_to_its_driver(tmp_path: Path, on_vfio: bool) -> None:
    card = igb()
    host, vfs = fake_vfs(tmp_path, card)
    vfs.create("eth1", 2, owner="demo")
    if on_vfio:
        put_on_vfio(host, FIRST)
    before, driver = dict(card.settings[0]), vfs.find(FIRST).driver
    host.writes.clear()
    wanted = Settings(max_rate=100, link_state="disable")
    vfs.assign(FIRST, owner="demo", settings=wanted, rebind=False)
    assert (card.settings[0]["max_tx_rate"], card.settings[0]["state"]) == ("100", "disable")
    assert vfs.release([], owner="demo") == []
    assert card.settings[0] == before
    assert (host.writes, host.given) == ([], [])
    assert vfs.find(FIRST).driver == driver


def test_a_setting_that_the_driver_refuses_undoes_the_rest(tmp_path: Path) -> None:
    card = igb()
    host, vfs = fake_vfs(tmp_path, card)
    vfs.create("eth1", 2, owner="demo")
    before = dict(card.settings[0])
    host.refused = {"min_tx_rate"}
    with refusal("Operation not supported"):
        vfs.assign(FIRST, owner="demo", settings=Settings(mac=MAC, min_rate=10))
    assert card.settings[0] == before
    assert vfs.find(FIRST).free


def test_a_setting_that_the_card_only_seems_to_take_is_noticed(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 1, owner="demo")
    assert vfs.find(FIRST).settings["trust"] == "off"
    host.ignored = {"trust"}
    with refusal("0000:01:00.0 took trust on for 0000:01:08.0 without an error, and has off"):
        vfs.assign(FIRST, owner="demo", settings=Settings(mac=MAC, trust=True))
    assert vfs.find(FIRST).free


def test_what_is_in_use_is_left_alone(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 2, owner="demo")
    vfs.assign(FIRST, owner="demo")
    host.files(host.device(FIRST) / "net/eth1v0", flags="0x1003")
    vfs.assign(SECOND, owner="vm", vfio=True)
    host.files(host.device(SECOND), enable="1")  # as if QEMU had the device open
    writes = len(host.writes)
    with refusal("0000:01:08.0 is in use: its interface eth1v0 is up"):
        vfs.release([FIRST])
    with refusal("0000:01:08.1 is in use: a program has it open through vfio-pci"):
        vfs.release([SECOND])
    with refusal("0000:01:08.0 of 0000:01:00.0 is assigned to demo"):
        vfs.remove("eth1")
    with refusal("eth1 has no free VF"):
        vfs.assign("eth1", owner="third")
    assert len(host.writes) == writes


def test_an_interface_in_another_network_namespace_counts_as_in_use(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 1, owner="demo")
    interfaces = host.device(FIRST) / "net"
    (interfaces / "eth1v0").rename(tmp_path / "gone")
    with refusal("in another network namespace"):
        vfs.remove("eth1")


def test_names_and_users_are_kept_apart(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb(), user=1000)
    vfs.create("eth1", 2, owner="demo")
    vfs.assign(FIRST, owner="demo", vfio=True)
    with refusal("0000:01:08.0 is assigned to demo"):
        vfs.assign(FIRST, owner="other")
    assert host.given == [("20", 1000)]
    stranger = Vfs(host, FakeHelper(host, 1001))
    with refusal("belongs to demo of user 1000"):
        stranger.release([FIRST])
    with refusal("0000:01:00.0 belongs to demo, not to other"):
        stranger.create("eth1", 3, owner="other")
    with refusal("0000:01:08.1 is not assigned"):
        vfs.release([SECOND])
    assert Vfs(host, FakeHelper(host)).release([FIRST]) == []  # root can release it
    assert host.given[-1] == ("20", 0)


def test_vfs_that_somebody_else_made_are_not_replaced(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "2")
    with refusal("has 2 VFs already, which are not ours"):
        vfs.create("eth1", 3, owner="demo")
    vfs.create("eth1", 2, owner="demo")
    vfs.assign("eth1", owner="demo")
    assert records(host)["physical"] == {}


def test_a_command_killed_halfway_leaves_what_can_be_released(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 1, owner="demo")

    class Killed(BaseException):
        pass

    class Dying(FakeHost):
        def write(self, path: Path, text: str) -> None:
            super().write(path, text)
            if path.name == "unbind":
                raise Killed

    host.__class__ = Dying
    free = {"vf": FIRST, "fresh": True, "settings": {}, "binding": ""}
    FakeHelper(host)("assign", vfs=[free], owner="demo")
    with pytest.raises(Killed):
        FakeHelper(host)("bind", vf=FIRST, owner="demo", binding="vfio-pci")
    host.__class__ = FakeHost
    vf = vfs.find(FIRST)
    assert (vf.driver, vf.owner) == ("", "demo")
    vfs.release([], owner="demo")
    vf = vfs.find(FIRST)
    assert (vf.driver, vf.owner) == ("igbvf", "")


def test_a_recorded_vf_that_is_gone_can_be_released(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 1, owner="demo")
    vfs.assign(FIRST, owner="demo")
    host.write(host.device("0000:01:00.0") / "sriov_numvfs", "0")
    vfs.release([FIRST])
    assert records(host)["vfs"] == {}


def test_all_of_an_owner_is_released(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb(), mlx5())
    vfs.create("eth1", 2, owner="demo")
    vfs.create("mlx5_0", 1, owner="other")
    vfs.assign(FIRST, owner="demo", vfio=True)
    vfs.assign("mlx5_0", owner="demo", vfio=True)
    assert vfs.clear("demo") == []
    ethernet, infiniband = vfs.cards()
    assert ethernet.vfs == ()
    assert [vf.owner for vf in infiniband.vfs] == [""]
    assert records(host)["vfs"] == {}
    assert vfs.clear("demo") == []


def test_a_taken_hardware_address_is_refused(tmp_path: Path) -> None:
    _, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 2, owner="demo")
    vfs.assign(FIRST, owner="demo", settings=Settings(mac=MAC))
    vfs.assign(FIRST, owner="demo", settings=Settings(mac=MAC))  # its own is no clash
    with refusal(f"eth1v0 of this host has the hardware address {MAC} already"):
        vfs.assign(SECOND, owner="demo", settings=Settings(mac=MAC))
    assert vfs.find(SECOND).free


def test_without_an_iommu_nothing_goes_to_vfio(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 1, owner="demo")
    (host.device(FIRST) / "iommu_group").unlink()
    with refusal("is in no IOMMU group: the IOMMU is off: switch it on"):
        vfs.assign(FIRST, owner="demo", vfio=True)
    assert vfs.find(FIRST).free


def test_a_shared_iommu_group_is_named(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 2, owner="demo")
    group = host.device(FIRST) / "iommu_group/devices"
    (group / "0000:01:00.0").symlink_to(host.device("0000:01:00.0"))
    with refusal("is in one IOMMU group with 0000:01:00.0, which igb has"):
        vfs.assign(FIRST, owner="demo", vfio=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(mac="01:00:5e:00:00:01"), "no hardware address of an interface"),
        (Settings(mac="52:54:00"), "no hardware address of an interface"),
        (Settings(vlan=5000), "5000 is no VLAN"),
        (Settings(qos=3), "a priority was given without a VLAN"),
        (Settings(min_rate=10, max_rate=5), "the least rate, 10 Mbit/s, is above the highest"),
        (Settings(link_state="up"), "up is no link state"),
        (Settings(port_guid=GUID), "is an Ethernet card, and --port-guid cannot be set there"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, settings: Settings, said: str) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 1, owner="demo")
    with refusal(said):
        vfs.assign(FIRST, owner="demo", settings=settings)
    assert records(host)["vfs"] == {}


def test_addresses_are_read_as_people_write_them() -> None:
    assert parse_mac("52-54-00-AA-BB-01") == MAC
    for text in ("0x0011223344556677", "0011:2233:4455:6677", GUID):
        assert parse_guid(text) == GUID
    for text in ("0x0", "00" * 8, "ff" * 8, "gg" * 8, "001122334455667"):
        with refusal("is no GUID"):
            parse_guid(text)


@pytest.mark.parametrize("card", [igb(), mlx5(), mlx4()], ids=["igb", "mlx5", "mlx4"])
def test_every_kind_of_card_is_told_apart(tmp_path: Path, card: FakeCard) -> None:
    _, vfs = fake_vfs(tmp_path, card)
    kind = "ethernet" if card.kind == "ethernet" else "infiniband"
    assert vfs.cards()[0].kind == kind


class Interrupting(FakeHelper):
    """Performs a request once, and then raises a signal."""

    def __init__(self, host: FakeHost, operation: str) -> None:
        super().__init__(host)
        self.operation = operation

    def __call__(self, operation: str, **fields: object) -> dict[str, object]:
        answer = super().__call__(operation, **fields)
        if operation == self.operation:
            self.operation = ""
            raise Ended(signal.SIGINT)
        return answer


def test_an_interrupted_assignment_is_undone(tmp_path: Path) -> None:
    card = igb()
    host, vfs = fake_vfs(tmp_path, card)
    vfs.create("eth1", 1, owner="demo")
    before = dict(card.settings[0])
    helper = Interrupting(host, "assign")
    with pytest.raises(Ended):
        Vfs(host, helper).assign(FIRST, owner="demo", settings=Settings(mac=MAC), vfio=True)
    assert helper.operation == ""
    vf = vfs.find(FIRST)
    assert (vf.driver, vf.owner) == ("igbvf", "")
    assert card.settings[0] == before


@pytest.mark.parametrize("card", [igb(), mlx5(), mlx4()], ids=["igb", "mlx5", "mlx4"])
def test_a_helper_killed_at_any_step_leaves_what_release_undoes(
    tmp_path: Path, card: FakeCard
) -> None:
    """The kill comes before each change of the host, and after the last one."""

    class Killed(BaseException):
        pass

    steps = 0

    class Mortal(FakeHost):
        def write(self, path: Path, text: str) -> None:
            self._live()
            super().write(path, text)

        def run(self, name: str, *arguments: str) -> str:
            self._live()
            return super().run(name, *arguments)

        def give(self, path: Path, user: int) -> None:
            self._live()
            super().give(path, user)

        def _live(self) -> None:
            nonlocal steps
            if not steps:
                raise Killed
            steps -= 1

    steps = most = 1000
    host = Mortal(tmp_path, card)
    vfs = Vfs(host, FakeHelper(host))
    made = vfs.create(card.address, 2, owner="demo").vfs
    addresses = [each.address for each in made]
    settings: dict[str, object] = {"port_guid": "00:11:22:33:44:55:66:77"}
    if card.kind == "ethernet":
        settings = {"mac": MAC, "vlan": 7, "trust": True}
    given = {"fresh": True, "settings": settings, "binding": "vfio-pci"}
    wanted = [{"vf": address, **given} for address in addresses]

    def state() -> list[tuple[object, ...]]:
        found = map(vfs.find, addresses)
        told = [dict(card.settings[each]) for each in range(2)]
        return [(each.driver, each.owner, each.settings, *told) for each in found]

    before, killed = state(), 0
    for at in range(most):
        steps = at
        try:
            FakeHelper(host)("assign", vfs=wanted, owner="demo")
        except Killed:
            killed += 1
        done = steps > 0
        steps = most
        if kept := records(host)["vfs"]:
            assert set(kept) == set(addresses)  # all were recorded before the first was changed
            assert vfs.release([], owner="demo") == []
        assert state() == before
        if done:
            break
    assert killed > 4


def test_what_fails_in_the_helper_is_undone_there(tmp_path: Path) -> None:
    card = igb()
    host, vfs = fake_vfs(tmp_path, card)
    vfs.create("eth1", 1, owner="demo")
    host.refused = {"trust"}
    before = dict(card.settings[0])
    helper = FakeHelper(host)
    with refusal(r"Operation not supported \(trust\)"):
        Vfs(host, helper).assign(
            FIRST, owner="demo", settings=Settings(mac=MAC, trust=True), vfio=True
        )
    assert helper.asked == ["assign"]
    assert (card.settings[0], records(host)["vfs"]) == (before, {})


def test_interrupted_making_is_undone(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    with pytest.raises(Ended):
        Vfs(host, Interrupting(host, "count")).create("eth1", 2, owner="demo")
    assert vfs.cards()[0].vfs == ()
    assert records(host) == {"physical": {}, "vfs": {}}


@pytest.mark.parametrize("owner", ["demo", "other"])
def test_two_commands_at_once_get_different_vfs(tmp_path: Path, owner: str) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 2, owner="demo")
    other: list[str] = []

    class Slow(FakeHelper):
        def __call__(self, operation: str, **fields: object) -> dict[str, object]:
            if not other:  # the other command chooses first
                other.append(vfs.assign("eth1", owner=owner).address)
            return super().__call__(operation, **fields)

    given = Vfs(host, Slow(host)).assign("eth1", owner="demo")
    assert [given.address, *other] == [SECOND, FIRST]
    assert records(host)["vfs"][FIRST]["owner"] == owner
    assert records(host)["vfs"][SECOND]["owner"] == "demo"


def test_a_vf_that_was_named_and_is_just_taken(tmp_path: Path) -> None:
    host, vfs = fake_vfs(tmp_path, igb())
    vfs.create("eth1", 2, owner="demo")

    class Slow(FakeHelper):
        def __call__(self, operation: str, **fields: object) -> dict[str, object]:
            if not self.asked:
                vfs.assign(FIRST, owner="other")
            return super().__call__(operation, **fields)

    with refusal(f"{FIRST} is assigned to other"):
        Vfs(host, Slow(host)).assign(FIRST, owner="demo")
    assert set(records(host)["vfs"]) == {FIRST}
