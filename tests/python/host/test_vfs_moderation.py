"""Interrupt moderation, on a fake `ethtool` that answers as drivers do.

tests/guests/vf/test_guest_vfs.py uses the real ethtool, with emulated igb and igbvf.
"""

from pathlib import Path

import pytest
from fake_cards import FakeHelper, FakeHost, igb

from vicinal.base.errors import VicinalError
from vicinal.host.vf.moderation import interface_of, read_moderation, set_moderation
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.privileged.system import RefusedError

TEXT = """Coalesce parameters for {interface}:
Adaptive RX: n/a  TX: n/a
stats-block-usecs:\tn/a

rx-usecs:\t{rx-usecs}
rx-frames:\tn/a
tx-usecs:\t{tx-usecs}
"""


class Card(FakeHost):
    """A card whose driver supports only times; it accepts tx-usecs without an effect."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, igb())
        self.values = {"rx-usecs": "3", "tx-usecs": "0"}

    def run(self, name: str, *arguments: str) -> str:
        if name != "ethtool":
            return super().run(name, *arguments)
        option, interface, *words = arguments
        if option == "-c":
            return TEXT.format(interface=interface, **self.values)
        setting, value = words
        if setting not in self.values:
            raise RefusedError(f"`ethtool`: Operation not supported ({setting})", "x")
        if setting != "tx-usecs":
            self.values[setting] = value
        return ""


@pytest.fixture
def host(tmp_path: Path) -> Card:
    return Card(tmp_path)


def test_what_is_set_is_read_back(host: Card) -> None:
    assert read_moderation(host, "eth1") == {"rx-usecs": "3", "tx-usecs": "0"}
    assert set_moderation(host, "eth1", {"rx-usecs": "10"})["rx-usecs"] == "10"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            {"rx-usecs": "10", "rx-frames": "4"},
            "the driver of eth1 refuses rx-frames 4: `ethtool`: Operation not supported",
        ),
        (
            {"rx-usecs": "10", "tx-usecs": "5"},
            "eth1 accepted tx-usecs 5 without an error, and has 0",
        ),
    ],
)
def test_what_is_not_done_is_named_and_the_rest_undone(
    host: Card, wanted: dict[str, str], said: str
) -> None:
    with pytest.raises(VicinalError) as caught:
        set_moderation(host, "eth1", wanted)
    assert said in str(caught.value)
    assert host.values == {"rx-usecs": "3", "tx-usecs": "0"}


def test_cards_and_vfs_go_by_all_their_names(host: Card) -> None:
    vfs = Vfs(host, FakeHelper(host))
    vfs.create("eth1", 2, owner="demo")
    assert interface_of(vfs, "0000:01:00.0") == "eth1"
    assert interface_of(vfs, "0000:01:08.1") == "eth1v1"
    assert interface_of(vfs, "eth1v0") == "eth1v0"
    vfs.assign("0000:01:08.0", owner="vm", vfio=True)
    with pytest.raises(
        VicinalError, match="it is bound to vfio-pci: set its moderation in the guest"
    ):
        interface_of(vfs, "0000:01:08.0")
    with pytest.raises(VicinalError, match="eth7 is no card"):
        interface_of(vfs, "eth7")
