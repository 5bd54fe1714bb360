"""InfiniBand VFs on fake cards (fake_cards.py): GUIDs, policy, partitions, port states.

test_vfs_subnet.py checks with a simulated subnet whether there is a subnet manager.
"""

from pathlib import Path
from typing import Any

import pytest
from fake_cards import FakeCard, fake_vfs, mlx4, mlx5

from vicinal.base.errors import VicinalError
from vicinal.host.vf.infiniband import derived_guid
from vicinal.host.vf.settings import Settings

M5, M4 = "0000:02:08.0", "0000:03:08.0"
NODE, PORT = "00:11:22:33:44:55:66:77", "00:11:22:33:44:55:66:78"


def made(directory: Path, card: FakeCard) -> Any:
    host, vfs = fake_vfs(directory, card)
    vfs.create(card.rdma, 2, owner="demo")
    return host, vfs


def test_mlx5_gets_guids_and_policy_and_its_driver_anew(tmp_path: Path) -> None:
    host, vfs = made(tmp_path, mlx5())
    host.writes.clear()
    settings = Settings(node_guid=NODE, port_guid=PORT, link_state="auto")
    vf = vfs.assign("mlx5_0", owner="demo", settings=settings, wait=5)
    assert [text for _, text in host.writes] == [NODE, PORT, "Follow", "", M5, M5]
    assert host.writes[0][0] == "bus/pci/devices/0000:02:00.0/sriov/0/node"
    assert host.writes[4][0].endswith("driver/unbind")
    assert vf.ports[0].state == "ACTIVE"
    assert vf.ports[0].guid == PORT


def test_mlx5_without_guids_gets_some_of_its_card_s(tmp_path: Path) -> None:
    host, vfs = made(tmp_path, mlx5())
    first = vfs.assign("mlx5_0", owner="demo", wait=5)
    second = vfs.assign("mlx5_0", owner="demo", wait=5)
    assert first.ports[0].state == second.ports[0].state == "ACTIVE"
    own = host.device("0000:02:00.0") / "sriov"
    guids = [host.read(own / number / name) for number in "01" for name in ("node", "port")]
    assert guids == [f"ec:0d:9a:f0:{number:02x}:c0:41:d4" for number in range(4)]
    vfs.release([], owner="demo")
    assert host.read(own / "0/policy") == "Down"


def test_derived_guids_differ_between_cards_and_vfs() -> None:
    bases = ("ec:0d:9a:03:00:c0:41:d4", "ec:0d:9a:03:00:c0:41:d5")
    guids = {derived_guid(base, number) for base in bases for number in range(256)}
    assert len(guids) == 512
    assert guids.isdisjoint(bases)


def test_what_another_host_is_to_have_is_had_here_no_more(tmp_path: Path) -> None:
    """The driver does not show a VF's previous GUID, so the VF gets its card's own."""
    for kind, known in (("mlx5", "00:" * 7 + "00"), ("mlx5-kernel", "ec:0d:9a:f0:01:c0:41:d4")):
        _, vfs = made(tmp_path / kind, mlx5(kind=kind))
        settings = Settings(node_guid=NODE, port_guid=PORT)
        vfs.assign(M5, owner="demo", settings=settings, wait=0)
        assert vfs.find(M5).ports[0].guid == PORT
        vfs.withdraw(M5, owner="demo")
        assert vfs.find(M5).owner == "demo"
        assert [port.guid for port in vfs.find(M5).ports] == [known]
        vfs.assign(M5, owner="demo", settings=settings, wait=0)
        assert vfs.find(M5).ports[0].guid == PORT


def test_a_taken_guid_is_refused(tmp_path: Path) -> None:
    host, vfs = made(tmp_path, mlx5())
    vfs.assign(M5, owner="demo", settings=Settings(node_guid=NODE, port_guid=PORT))
    with pytest.raises(VicinalError, match=f"mlx5_0v0 .*has the GUID {PORT} already"):
        vfs.assign("mlx5_0", owner="demo", settings=Settings(port_guid=PORT))
    assert host.read(host.device("0000:02:00.0") / "sriov/1/port").startswith("00:00")


def test_the_kernel_s_own_way_is_ip_link(tmp_path: Path) -> None:
    host, vfs = made(tmp_path, mlx5(kind="mlx5-kernel"))
    settings = Settings(node_guid=NODE, port_guid=PORT, link_state="auto")
    vfs.assign(M5, owner="demo", settings=settings, vfio=True)
    told = [call[5:] for call in host.calls if call[1:3] == ["link", "set"]]
    assert told == [
        ["vf", "0", "node_guid", NODE],
        ["vf", "0", "port_guid", PORT],
        ["vf", "0", "state", "auto"],
    ]


def test_mlx4_gets_a_port_guid_and_a_partition(tmp_path: Path) -> None:
    host, vfs = made(tmp_path, mlx4())
    host.writes.clear()
    settings = Settings(port_guid=PORT, pkey=0x0001)
    vf = vfs.assign("mlx4_0", owner="demo", settings=settings, wait=5)
    iov = "bus/pci/devices/0000:03:00.0/infiniband/mlx4_0/iov"
    assert host.writes[:2] == [
        (f"{iov}/ports/1/admin_guids/1", f"0x{PORT.replace(':', '')}"),
        (f"{iov}/{M4}/ports/1/pkey_idx/0", "1"),
    ]
    assert vf.ports[0].guid == PORT
    vfs.release([M4])
    assert host.read(host.sysfs / iov / "ports/1/admin_guids/1") == "f" * 16


def test_what_a_driver_cannot_set_is_said(tmp_path: Path) -> None:
    _, vfs = made(tmp_path, mlx4())
    with pytest.raises(VicinalError, match="cannot set node_guid"):
        vfs.assign(M4, owner="demo", settings=Settings(node_guid=NODE))
    with pytest.raises(VicinalError, match="is in no partition 0x8042"):
        vfs.assign(M4, owner="demo", settings=Settings(pkey=0x8042))
    assert vfs.find(M4).free
    _, vfs = made(tmp_path / "mlx5", mlx5())
    with pytest.raises(VicinalError, match="leaves partitions to the subnet manager"):
        vfs.assign(M5, owner="demo", settings=Settings(pkey=0x8001))
    with pytest.raises(VicinalError, match="InfiniBand card, and --mac and --vlan cannot be set"):
        vfs.assign(M5, owner="demo", settings=Settings(mac="52:54:00:aa:bb:01", vlan=3))


CAUSES = [
    (
        {"port_link": "2: Polling", "port_state": "1: DOWN", "vf_state": "1: DOWN"},
        r"mlx5_0/1 has no link \(Polling\): see to the cable",
    ),
    (
        {"port_state": "2: INIT", "subnet_manager": "0x0", "vf_state": "1: DOWN"},
        "there is no subnet manager: the card's own port mlx5_0/1 is INIT",
    ),
    (
        {"vf_state": "1: DOWN"},
        "the subnet manager does not serve virtual functions: .*virt_enabled 2",
    ),
]


@pytest.mark.parametrize(("changes", "cause"), CAUSES, ids=["cable", "manager", "virtualization"])
def test_the_cause_is_named_when_the_port_does_not_come(
    tmp_path: Path, changes: dict[str, str], cause: str
) -> None:
    host, vfs = made(tmp_path, mlx5(**changes))
    with pytest.raises(VicinalError, match=f"did not become ACTIVE within 0.2 s: .*{cause}"):
        vfs.assign("mlx5_0", owner="demo", wait=0.2)
    # The failed assignment is undone.
    assert vfs.find(M5).free
    assert host.read(host.device("0000:02:00.0") / "sriov/0/policy") == "Down"


def test_a_policy_that_keeps_the_port_down_is_named(tmp_path: Path) -> None:
    _, vfs = made(tmp_path, mlx5())
    with pytest.raises(VicinalError, match="its policy is Down: assign it with --policy auto"):
        vfs.assign(M5, owner="demo", settings=Settings(link_state="disable"), wait=0.2)


def test_a_guid_of_zero_is_named(tmp_path: Path) -> None:
    _, vfs = made(tmp_path, mlx4())
    with pytest.raises(VicinalError, match="GUID is zero: the subnet manager has granted none"):
        vfs.assign(M4, owner="demo", wait=0.2)


def test_the_kernel_s_mlx5_gets_guids_where_they_show_as_zero(tmp_path: Path) -> None:
    host, vfs = made(tmp_path, mlx5(kind="mlx5-kernel"))
    vf = vfs.assign(M5, owner="demo", wait=5)
    told = [call[7:] for call in host.calls if call[1:3] == ["link", "set"]]
    guids = [["node_guid", "ec:0d:9a:f0:00:c0:41:d4"], ["port_guid", "ec:0d:9a:f0:01:c0:41:d4"]]
    assert told == guids
    assert vf.ports[0].state == "ACTIVE"
    with pytest.raises(VicinalError, match="is no mlx4 card, and --port cannot be set"):
        vfs.assign("mlx5_0", owner="demo", settings=Settings(port=1))
