"""OpenNebula's networks of SR-IOV VFs: composed documents, fake cards (fake_cards.py)."""

import base64
import io
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from fake_cards import FakeCard, FakeHelper, FakeHost, fake_vfs, igb, mlx4, mlx5
from opennebula_support import Host, error_text

from vicinal.base.errors import VicinalError
from vicinal.cli import run
from vicinal.host.vf.operations import Vfs
from vicinal.integrations.opennebula.call import Call
from vicinal.integrations.opennebula.driver import perform
from vicinal.integrations.opennebula.network import Network, guid_of, main
from vicinal.integrations.opennebula.vf import VfNic, read_nics

MAC = "02:00:0a:00:00:07"
GUID = "02:00:0a:ff:fe:00:00:07"
CARDS = {"mlx5": "0000:02:00.0", "mlx4": "0000:03:00.0", "igb": "0000:01:00.0"}

NIC = """<PCI><ADDRESS>{address}</ADDRESS><TYPE>NIC</TYPE><VN_MAD>{driver}</VN_MAD>
<MAC><![CDATA[{mac}]]></MAC><NETWORK_ID>3</NETWORK_ID><NIC_ID>1</NIC_ID>{more}</PCI>"""


def first_of(card: str, number: int = 0) -> str:
    return f"{CARDS[card][:-4]}08.{number}"


def nic(address: str, more: str = "", *, driver: str = "vicinal", mac: str = MAC) -> str:
    written = f"{address[:-2]}:{address[-1]}"  # OpenNebula's form
    return NIC.format(address=written, driver=driver, mac=mac, more=more)


def document(*nics: str, vm: int = 7) -> bytes:
    text = "".join(nics)
    return f"<VM><ID>{vm}</ID><UID>5</UID><TEMPLATE>{text}</TEMPLATE></VM>".encode()


def nics(*written: str) -> Sequence[VfNic]:
    found = read_nics(document(*written))[1]
    assert found is not None
    return found


class Trial:
    """A host with a card of which OpenNebula may assign two VFs."""

    def __init__(self, directory: Path, card: FakeCard) -> None:
        self.host, self.vfs = fake_vfs(directory, card)
        self.card = card
        if card.kind == "mlx4":  # created when its module is loaded
            for number in range(2):
                self.host.make_vf(card, number)
            table = self.host.device(card.address) / f"infiniband/{card.rdma}/iov/ports/1/pkeys"
            self.host.files(table, **{"0": "0xffff", "1": "0x8005"})
        else:
            self.vfs.create(card.address, 2, owner="cloud")
        self.running: set[int] = set()
        self.network = network(self.vfs, self.running)
        self.before = self.state()

    def state(self) -> list[object]:
        """The visible state of all VFs."""
        return [each for card in self.vfs.cards() for each in card.vfs]

    def owners(self) -> list[str]:
        return [each.owner for card in self.vfs.cards() for each in card.vfs]


def network(vfs: Vfs, running: set[int]) -> Network:
    return Network(vfs, lambda: running, free_seconds=0.2, active_seconds=0.2)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path, mlx5())


# --- documents -----------------------------------------------------------------------------


def test_the_vfs_of_our_networks_are_read() -> None:
    more = "<VLAN_ID>5</VLAN_ID><TRUST>YES</TRUST><SPOOFCHK>no</SPOOFCHK>"
    vm, found = read_nics(
        document(
            nic("0000:02:08.1", more),
            nic("0000:02:08.2", driver="bridge"),
            "<PCI><ADDRESS>0000:41:00:0</ADDRESS></PCI><NIC><VN_MAD>vicinal</VN_MAD></NIC>",
        )
    )
    assert vm == 7
    assert found == [
        VfNic("0000:02:08.1", MAC, 5, False, True, None, None, None, 3, attached=False),
    ]


def test_what_is_attached_alone_is_meant() -> None:
    both = (nic("0000:02:08.0"), nic("0000:02:08.1", "<ATTACH>YES</ATTACH>"))
    assert [each.address for each in nics(*both)] == ["0000:02:08.1"]


@pytest.mark.parametrize(
    "comes",
    [
        "<NIC><VN_MAD>bridge</VN_MAD><NIC_ID>2</NIC_ID><ATTACH>YES</ATTACH></NIC>",
        "<NIC_ALIAS><VN_MAD>bridge</VN_MAD><ATTACH>YES</ATTACH></NIC_ALIAS>",
        nic("0000:02:08.1", "<ATTACH>YES</ATTACH>", driver="802.1Q"),
    ],
)
def test_where_another_drivers_nic_comes_or_goes_ours_are_not_meant(comes: str) -> None:
    assert read_nics(document(nic("0000:02:08.0"), comes)) == (7, None)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"<VM/>", "has no ID"),
        (b"<NIC/>", "begins with"),
        (document(nic("/../../etc/x")), "has the address '/../../etc:x'"),
        (document(nic("0000:02:08.9")), "has the address"),
        (document(nic("0000:02:08.0", mac="01:00:5e:00:00:01")), "no hardware address"),
        (document(nic("0000:02:08.0", "<VLAN_ID>-1</VLAN_ID>")), "VLAN_ID is '-1'"),
        (document(nic("0000:02:08.0", "<TRUST>maybe</TRUST>")), "TRUST is 'maybe'"),
        (document(nic("0000:02:08.0"), nic("0000:02:08.0")), "has the VF 0000:02:08.0 twice"),
        (b"<!DOCTYPE VM [<!ENTITY a 'a'>]>" + document(), "declares a document type"),
    ],
)
def test_documents_that_cannot_be_are_refused(written: bytes, said: str) -> None:
    with pytest.raises(VicinalError) as raised:
        read_nics(written)
    assert said in str(raised.value)


# --- before the VM boots, and after --------------------------------------------------------


def test_a_vf_has_its_guids_before_the_vm_boots(trial: Trial) -> None:
    address = first_of("mlx5")
    trial.network.prepare(7, nics(nic(address)))
    given = trial.vfs.find(address)
    assert (given.owner, given.driver) == ("one-7", "vfio-pci")
    assert (given.settings["node_guid"], given.settings["port_guid"]) == (GUID, GUID)
    assert given.settings["policy"] == "auto"
    assert trial.network.clean(7, nics(nic(address))) == []
    assert trial.state() == trial.before


@pytest.mark.parametrize(
    ("state", "link", "manager", "cause"),
    [
        ("2: INIT", "5: LinkUp", "0x0", "there is no subnet manager"),
        ("1: DOWN", "2: Polling", "0x0", "has no link (Polling)"),
        ("3: ARMED", "5: LinkUp", "0x1", "is ARMED"),
    ],
)
@pytest.mark.parametrize("make", [mlx5, mlx4])
def test_a_vm_whose_port_could_not_come_up_is_refused(
    tmp_path: Path, make: Callable[..., FakeCard], state: str, link: str, manager: str, cause: str
) -> None:
    trial = Trial(tmp_path, make(port_state=state, port_link=link, subnet_manager=manager))
    with pytest.raises(VicinalError) as raised:
        trial.network.prepare(7, nics(nic(first_of(trial.card.kind))))
    assert cause in str(raised.value)
    assert trial.state() == trial.before


def test_a_network_without_addresses_has_no_guids(trial: Trial) -> None:
    both = nics(nic(first_of("mlx5")), nic(first_of("mlx5", 1), mac=""))
    with pytest.raises(VicinalError, match="no hardware address, and its GUIDs need one"):
        trial.network.prepare(7, both)
    assert trial.state() == trial.before


def test_guids_are_those_of_hardware_addresses() -> None:
    assert guid_of(MAC) == GUID
    assert guid_of("02:00:0a:00:00:08") != GUID


def test_mlx4_gets_a_guid_and_its_partition(tmp_path: Path) -> None:
    trial = Trial(tmp_path, mlx4())
    address = first_of("mlx4")
    trial.network.prepare(7, nics(nic(address, "<VLAN_ID>5</VLAN_ID>")))
    iov = trial.host.device(trial.card.address) / f"infiniband/{trial.card.rdma}/iov"
    assert trial.host.read(iov / address / "ports/1/pkey_idx/0") == "1"
    assert trial.host.read(iov / "ports/1/admin_guids/1") == "0x" + GUID.replace(":", "")
    assert trial.network.clean(7, nics(nic(address))) == []
    assert trial.owners() == ["", ""]
    assert trial.host.read(iov / address / "ports/1/pkey_idx/0") == "none"


def test_a_partition_that_the_card_cannot_set_is_refused(trial: Trial) -> None:
    """mlx5 leaves partitions to the subnet manager; a VM must not run in the wrong partition."""
    with pytest.raises(VicinalError, match="leaves partitions to the subnet manager"):
        trial.network.prepare(7, nics(nic(first_of("mlx5"), "<VLAN_ID>5</VLAN_ID>")))
    assert trial.state() == trial.before


def test_ethernet_has_its_address_before_the_vm_boots(tmp_path: Path) -> None:
    trial = Trial(tmp_path, igb())
    more = "<VLAN_ID>9</VLAN_ID><SPOOFCHK>NO</SPOOFCHK><TRUST>YES</TRUST>"
    trial.network.prepare(7, nics(nic(first_of("igb"), more)))
    now = trial.card.settings[0]
    assert (now["mac"], now["vlan"], now["spoofchk"], now["trust"]) == (MAC, "9", "off", "on")
    assert trial.network.clean(7, []) == []
    assert trial.state() == trial.before


def test_nothing_is_said_of_a_vlan_where_there_is_none(tmp_path: Path) -> None:
    """A card's driver may not support VLANs, and would refuse the whole command."""
    trial = Trial(tmp_path, igb())
    trial.host.refused = {"vlan"}
    trial.network.prepare(7, nics(nic(first_of("igb"))))
    trial.network.update(7, nics(nic(first_of("igb"))), 3)
    assert not [call for call in trial.host.calls if "vlan" in call]
    assert trial.card.settings[0]["mac"] == MAC
    assert trial.network.clean(7, []) == []
    assert trial.state() == trial.before


def test_a_vlan_that_was_left_is_taken_away(tmp_path: Path) -> None:
    trial = Trial(tmp_path, igb())
    trial.card.settings[0]["vlan"] = "9"  # a VLAN of an unknown owner, without a record
    trial.network.prepare(7, nics(nic(first_of("igb"))))
    assert trial.card.settings[0]["vlan"] == "0"
    # The VM's driver was killed. When the next VM takes over, the original value comes back first.
    trial.network.prepare(8, nics(nic(first_of("igb"))))
    assert (trial.owners(), trial.card.settings[0]["vlan"]) == (["one-8", ""], "0")
    assert trial.network.clean(8, []) == []
    assert trial.card.settings[0]["vlan"] == "9"


def test_a_network_that_loses_its_vlan_takes_it_from_its_vms(tmp_path: Path) -> None:
    trial = Trial(tmp_path, igb())
    trial.network.prepare(7, nics(nic(first_of("igb"), "<VLAN_ID>9</VLAN_ID>")))
    trial.network.update(7, nics(nic(first_of("igb"))), 3)
    assert trial.card.settings[0]["vlan"] == "0"
    assert trial.network.clean(7, []) == []
    assert trial.state() == trial.before


def test_ethernet_has_its_rates_and_link_state_where_they_are_named(tmp_path: Path) -> None:
    trial = Trial(tmp_path, igb())
    trial.network.prepare(7, nics(nic(first_of("igb"))))
    asked = {word for call in trial.host.calls for word in call}
    assert not asked & {"min_tx_rate", "max_tx_rate", "state"}
    assert trial.network.clean(7, []) == []
    more = "<MIN_TX_RATE>100</MIN_TX_RATE><MAX_TX_RATE>500</MAX_TX_RATE>"
    trial.network.prepare(7, nics(nic(first_of("igb"), f"{more}<LINK_STATE>Disable</LINK_STATE>")))
    now = trial.card.settings[0]
    assert (now["min_tx_rate"], now["max_tx_rate"], now["state"]) == ("100", "500", "disable")
    assert trial.network.clean(7, []) == []
    assert trial.state() == trial.before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("<MAX_TX_RATE>fast</MAX_TX_RATE>", "MAX_TX_RATE is 'fast'"),
        ("<MIN_TX_RATE>9</MIN_TX_RATE><MAX_TX_RATE>8</MAX_TX_RATE>", "above the highest"),
        ("<LINK_STATE>off</LINK_STATE>", "off is no link state"),
    ],
)
def test_rates_and_states_that_cannot_be_are_refused(tmp_path: Path, more: str, said: str) -> None:
    trial = Trial(tmp_path, igb())
    with pytest.raises(VicinalError, match=said):
        trial.network.prepare(7, nics(nic(first_of("igb"), more)))
    assert trial.state() == trial.before


def test_an_infiniband_vf_has_no_rate(trial: Trial) -> None:
    with pytest.raises(VicinalError, match="InfiniBand VFs have none"):
        trial.network.prepare(7, nics(nic(first_of("mlx5"), "<MAX_TX_RATE>8</MAX_TX_RATE>")))
    assert trial.state() == trial.before


def test_all_vfs_of_a_vm_or_none(trial: Trial) -> None:
    trial.vfs.assign(first_of("mlx5", 1), owner="vicinal.lab.node0")
    there = trial.state()
    both = nics(nic(first_of("mlx5")), nic(first_of("mlx5", 1), mac="02:00:0a:00:00:08"))
    with pytest.raises(VicinalError, match=r"08\.1 is assigned to vicinal\.lab\.node0"):
        trial.network.prepare(7, both)
    assert trial.state() == there


def test_all_vfs_of_a_vm_are_one_start_of_the_helper(trial: Trial) -> None:
    both = nics(nic(first_of("mlx5")), nic(first_of("mlx5", 1), mac="02:00:0a:00:00:08"))
    helper = FakeHelper(trial.host)
    ours = network(Vfs(trial.host, helper), trial.running)
    ours.prepare(7, both)
    assert trial.owners() == ["one-7", "one-7"]
    assert ours.clean(7, []) == []
    assert helper.asked == ["assign", "release"]
    assert trial.state() == trial.before


def test_a_deployment_that_is_tried_again(trial: Trial) -> None:
    for _ in range(2):
        trial.network.prepare(7, nics(nic(first_of("mlx5"))))
        assert trial.owners() == ["one-7", ""]


def test_tried_again_with_less_the_rest_is_gone(tmp_path: Path) -> None:
    """The VM's driver was killed, and its network has changed since then."""
    trial = Trial(tmp_path, igb())
    more = "<VLAN_ID>9</VLAN_ID><MAX_TX_RATE>500</MAX_TX_RATE><LINK_STATE>disable</LINK_STATE>"
    trial.network.prepare(7, nics(nic(first_of("igb"), more)))
    before = dict(trial.card.settings[1])
    trial.network.prepare(7, nics(nic(first_of("igb"))))
    assert trial.card.settings[0] == before | {"mac": MAC}
    assert trial.network.clean(7, []) == []
    assert trial.state() == trial.before


def test_what_an_ended_vm_has_left_goes_to_the_next(trial: Trial) -> None:
    """The VM's driver was killed; OpenNebula knows that the VF is free."""
    trial.network.prepare(7, nics(nic(first_of("mlx5"))))
    trial.running.add(7)
    with pytest.raises(VicinalError, match="is assigned to one-7"):
        trial.network.prepare(8, nics(nic(first_of("mlx5"))))
    assert trial.owners() == ["one-7", ""]
    trial.running.clear()
    trial.network.prepare(8, nics(nic(first_of("mlx5"), mac="02:00:0a:00:00:08")))
    assert trial.owners() == ["one-8", ""]
    assert trial.network.clean(8, []) == []
    assert trial.state() == trial.before


def test_one_that_is_detached_goes_alone(trial: Trial) -> None:
    both = [nic(first_of("mlx5", at), mac=f"02:00:0a:00:00:0{at}") for at in range(2)]
    trial.network.prepare(7, nics(*both))
    gone = nic(first_of("mlx5"), "<ATTACH>YES</ATTACH>")
    assert trial.network.clean(7, nics(gone, both[1])) == []
    assert trial.owners() == ["", "one-7"]
    assert trial.network.clean(7, nics(both[1])) == []
    assert trial.state() == trial.before
    assert trial.network.clean(7, nics(*both)) == []  # repeated calls are allowed


def test_a_vm_ends_though_its_vf_does_not_come_free(trial: Trial) -> None:
    trial.network.prepare(7, nics(nic(first_of("mlx5"))))
    trial.host.files(trial.host.device(first_of("mlx5")), enable="1")
    [note] = trial.network.clean(7, [])
    assert "stay assigned to one-7: " in note
    assert "is in use" in note
    assert trial.owners() == ["one-7", ""]


# --- while it runs -------------------------------------------------------------------------


def test_a_network_that_changes_reaches_the_vms_in_it(tmp_path: Path) -> None:
    trial = Trial(tmp_path, igb())
    trial.network.prepare(7, nics(nic(first_of("igb"), "<VLAN_ID>9</VLAN_ID>")))
    trial.host.files(trial.host.device(first_of("igb")), enable="1")  # QEMU has it open
    changed = nics(nic(first_of("igb"), "<VLAN_ID>12</VLAN_ID><TRUST>YES</TRUST>"))
    trial.network.update(7, changed, 4)  # the id of another network
    assert trial.card.settings[0]["vlan"] == "9"
    trial.network.update(7, changed, 3)
    now = trial.card.settings[0]
    assert (now["vlan"], now["trust"], now["mac"]) == ("12", "on", MAC)
    trial.host.files(trial.host.device(first_of("igb")), enable="0")
    assert trial.network.clean(7, []) == []
    assert trial.state() == trial.before


def test_another_vms_vf_is_not_changed(tmp_path: Path) -> None:
    trial = Trial(tmp_path, igb())
    trial.network.prepare(7, nics(nic(first_of("igb"))))
    with pytest.raises(VicinalError, match="belongs to one-7"):
        trial.network.update(8, nics(nic(first_of("igb"), "<VLAN_ID>12</VLAN_ID>")), 3)
    assert trial.card.settings[0]["vlan"] == "0"


# --- the scripts ---------------------------------------------------------------------------


def call(one: Host, action: str, given: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call a script as one_vmm_exec does: the document in base64, arguments for some actions."""
    return subprocess.run(
        [one.remotes / "vnm/vicinal" / action, *arguments],
        input=base64.b64encode(given).decode() + "\n",
        capture_output=True,
        text=True,
        env=one.variables(),
        check=False,
    )


@pytest.fixture
def one(tmp_path: Path) -> Host:
    host = Host(tmp_path)
    assert run(["opennebula", "install", "--remotes", str(host.remotes)]) == 0
    return host


@pytest.mark.parametrize("action", ["pre", "post", "clean", "update_nic"])
def test_scripts_of_vms_without_vfs_do_nothing(one: Host, action: str) -> None:
    done = call(one, action, document(nic("0000:02:08.0", driver="bridge")), "one-7", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("action", ["pre", "clean"])
def test_scripts_leave_a_vm_alone_to_which_another_drivers_nic_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """The VM's own VF is in use: clean would release it, and pre not set it up again."""
    trial = Trial(tmp_path, mlx5())
    trial.network.prepare(7, nics(nic(first_of("mlx5"))))
    trial.host.files(trial.host.device(first_of("mlx5")), enable="1")
    before = trial.state()
    comes = "<NIC><VN_MAD>bridge</VN_MAD><NIC_ID>2</NIC_ID><ATTACH>YES</ATTACH></NIC>"
    given = base64.b64encode(document(nic(first_of("mlx5")), comes))
    monkeypatch.setattr("vicinal.integrations.opennebula.network.Vfs", lambda: trial.vfs)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    main(Path("/remotes/vnm/vicinal") / action, ["one-7"])
    assert trial.state() == before


def test_a_snapshot_of_a_vm_with_vfs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt refuses it, because vfio-pci saves nothing, but the stock script hides the cause."""
    trial = Trial(tmp_path, mlx5())
    trial.network.prepare(7, nics(nic(first_of("mlx5"))))
    monkeypatch.setattr("vicinal.host.vf.operations.Vfs", lambda: trial.vfs)
    monkeypatch.setenv("VICINAL_OPENNEBULA_STATE", str(tmp_path / "state"))
    script = tmp_path / "vmm/vicinal/snapshot_create"
    with pytest.raises(VicinalError, match="VM 7 has SR-IOV VFs"):
        perform(Call(script, ("one-7", "0", "7", "node1")))

    class Stock(BaseException):
        pass

    def stock(_call: Call) -> NoReturn:
        raise Stock

    monkeypatch.setattr("vicinal.integrations.opennebula.driver.become_stock", stock)
    with pytest.raises(Stock):
        perform(Call(script, ("one-8", "0", "8", "node1")))


def test_a_script_says_why_as_opennebula_reads_it(one: Host) -> None:
    done = call(one, "pre", document(nic("ffff:02:08.0")))
    assert done.returncode == 1
    said = error_text(done.stderr)
    assert said.startswith("pre: Vicinal: ffff:02:08.0 is no virtual function of this host")
    assert "Traceback" not in done.stderr
    assert call(one, "clean", document(nic("ffff:02:08.0"))).returncode == 0
    done = call(one, "update_nic", document(), "one-7")
    assert "without the id of a virtual network" in error_text(done.stderr)
    done = call(one, "pre", b"\0\1")
    assert "is not XML" in error_text(done.stderr)


def test_a_host_of_the_driver_is_never_left_half_prepared(trial: Trial) -> None:
    """This also holds if a step of the card's driver fails."""

    class Failing(FakeHost):
        def write(self, path: Path, text: str) -> None:
            if path.name == "port":
                raise OSError(5, "Input/output error")
            super().write(path, text)

    trial.host.__class__ = Failing
    with pytest.raises(VicinalError, match="did not take"):
        trial.network.prepare(7, nics(nic(first_of("mlx5"))))
    trial.host.__class__ = FakeHost
    assert trial.owners() == ["", ""]
