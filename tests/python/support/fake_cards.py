"""Fake SR-IOV cards: a sysfs tree in a directory, and a kernel that answers writes to it.

The fakes stand for hardware that is not available here (mlx4, mlx5, broken firmware). Files and
answers are the drivers' own, as far as the privileged helper uses them. The real kernel, with an
emulated Ethernet card, is in tests/guests/vf/test_guest_vfs.py.
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.privileged.requests import PROTOCOL
from vicinal.host.vf.privileged.service import perform
from vicinal.host.vf.privileged.system import VFIO, Host, RefusedError

ZERO = "00:00:00:00:00:00:00:00"


@dataclass
class FakeCard:
    """How a card behaves."""

    address: str
    driver: str
    vf_driver: str
    device_class: str = "0x020000"
    interface: str = ""
    rdma: str = ""
    most: int = 4
    made_at_most: int | None = None
    """The most VFs that the firmware makes, without an error. None: as many as it says."""
    error: int = 0
    """The error of a write to sriov_numvfs."""
    kind: str = "ethernet"
    """ethernet, mlx4, mlx5 (drivers of the vendor) or mlx5-kernel."""
    guid: str = "ec0d:9a03:00c0:41d4"
    port_state: str = "4: ACTIVE"
    port_link: str = "5: LinkUp"
    subnet_manager: str = "0x1"
    vf_state: str = "4: ACTIVE"
    settings: dict[int, dict[str, str]] = field(default_factory=dict)


class FakeHost(Host):
    """A host with fake cards. `writes` and `calls` list what was done to it, in order."""

    def __init__(self, directory: Path, *cards: FakeCard) -> None:
        self.sysfs = directory / "sys"
        self.records = directory / "records"
        self.groups = directory / "vfio"
        self.cards = {card.address: card for card in cards}
        self.writes: list[tuple[str, str]] = []
        self.calls: list[list[str]] = []
        self.given: list[tuple[str, int]] = []
        """IOMMU groups, and the users who may now open them."""
        self.refused: set[str] = set()
        """Settings that the card's driver refuses."""
        self.ignored: set[str] = set()
        """Settings that the driver accepts without an effect."""
        (self.sysfs / "class/net").mkdir(parents=True)
        self.groups.mkdir()
        for driver in (VFIO, *(card.driver for card in cards)):
            (self.sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        for card in cards:
            self._make_card(card)

    def files(self, directory: Path, **texts: str) -> None:
        for name, text in texts.items():
            target = directory / name.replace("__", "/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"{text}\n")

    def write(self, path: Path, text: str) -> None:
        self.writes.append((str(path.relative_to(self.sysfs)), text.strip()))
        if path.name == "sriov_numvfs":
            self._make(self.cards[path.parent.name], int(text))
        elif path.name == "unbind":
            self._unbind(text)
        elif path.name == "drivers_probe":
            self._probe(text)
        elif not path.exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))
        else:
            path.write_text(text)

    def give(self, path: Path, user: int) -> None:
        self.given.append((path.name, user))

    def run(self, name: str, *arguments: str) -> str:
        words = list(arguments)
        self.calls.append([name, *words])
        if name == "modprobe":
            (self.sysfs / "bus/pci/drivers" / words[0]).mkdir()
            return ""
        if words[-1] in ("up", "down"):
            flags = self.sysfs / "class/net" / words[-2] / "flags"
            if not flags.exists():
                raise RefusedError(f'`ip`: Cannot find device "{words[-2]}"', "x")
            flags.write_text("0x1003\n" if words[-1] == "up" else "0x1002\n")
            return ""
        card = next(each for each in self.cards.values() if each.interface in words)
        if words[:3] == ["-j", "link", "show"]:
            listed = [self._listed(vf, texts) for vf, texts in card.settings.items()]
            return json.dumps([{"ifname": card.interface, "vfinfo_list": listed}])
        vf = int(words[words.index("vf") + 1])
        pairs = words[words.index("vf") + 2 :]
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if key in self.refused:
                raise RefusedError(f"`ip`: RTNETLINK answers: Operation not supported ({key})", "x")
            if key not in self.ignored:
                card.settings[vf][key] = value
        return ""

    def _listed(self, vf: int, texts: dict[str, str]) -> dict[str, Any]:
        return {
            "vf": vf,
            "address": texts["mac"],
            "vlan_list": [{"vlan": int(texts["vlan"])}],
            "rate": {"max_tx": int(texts["max_tx_rate"]), "min_tx": int(texts["min_tx_rate"])},
            "spoofchk": texts["spoofchk"] == "on",
            "link_state": texts["state"],
            "trust": texts["trust"] == "on",
        }

    def vf(self, card: FakeCard, number: int) -> str:
        return f"{card.address[:-4]}{8 + number // 8:02x}.{number % 8}"

    def _make_card(self, card: FakeCard) -> None:
        device = self.device(card.address)
        texts = {"class": card.device_class, "sriov_totalvfs": str(card.most)}
        self.files(device, sriov_numvfs="0", numa_node="0", driver_override="", **texts)
        (device / "driver").symlink_to(self.sysfs / "bus/pci/drivers" / card.driver)
        if card.interface:
            self._interface(card.address, card.interface, "52:54:00:00:01:01")
        if card.rdma:
            self._rdma(card.address, card.rdma, card, card.port_state, card.guid)

    def _make(self, card: FakeCard, count: int) -> None:
        device = self.device(card.address)
        now = int(self.read(device / "sriov_numvfs"))
        if card.error and count:
            raise OSError(card.error, os.strerror(card.error))
        if now and count:
            raise OSError(16, "Device or resource busy")
        for number in range(now):
            (device / f"virtfn{number}").unlink()
            vf = self.vf(card, number)
            self._unbind(vf)
            shutil.rmtree(self.device(vf))
        made = count if card.made_at_most is None else min(count, card.made_at_most)
        self.files(device, sriov_numvfs=str(made))
        for number in range(made):
            self.make_vf(card, number)

    def make_vf(self, card: FakeCard, number: int) -> None:
        device, address = self.device(card.address), self.vf(card, number)
        vf = self.device(address)
        self.files(vf, driver_override="", enable="0", **{"class": card.device_class})
        (vf / "physfn").symlink_to(device)
        group_number = 20 + 10 * list(self.cards).index(card.address) + number
        group = self.sysfs / f"kernel/iommu_groups/{group_number}"
        (group / "devices").mkdir(parents=True, exist_ok=True)
        member = group / "devices" / address
        if not member.is_symlink():
            member.symlink_to(vf)
        (vf / "iommu_group").symlink_to(group)
        (device / f"virtfn{number}").symlink_to(vf)
        card.settings[number] = {
            "mac": "00:00:00:00:00:00",
            "vlan": "0",
            "spoofchk": "on",
            "trust": "off",
            "state": "auto",
            "max_tx_rate": "0",
            "min_tx_rate": "0",
        }
        if card.kind == "mlx5":
            self.files(device / f"sriov/{number}", node=ZERO, port=ZERO, policy="Down")
        if card.kind == "mlx4":
            iov = device / "infiniband" / card.rdma / "iov"
            self.files(iov / "ports/1/admin_guids", **{str(number + 1): "ffffffffffffffff"})
            tables = {"gid_idx__0": str(number + 1), "pkey_idx__0": "none"}
            self.files(iov / address / "ports/1", **tables)
            self.files(iov / "ports/1/pkeys", **{"0": "0xffff", "1": "0x8001", "2": "0x0000"})
        self._probe(address)

    def _card_of(self, vf: str) -> tuple[FakeCard, int]:
        physical = self.link(self.device(vf) / "physfn")
        return self.cards[physical], self.vfs(physical).index(vf)

    def _unbind(self, vf: str) -> None:
        device = self.device(vf)
        (device / "driver").unlink(missing_ok=True)
        for kind in ("net", "infiniband"):
            for each in self.names(vf, kind):
                (self.sysfs / "class/net" / each).unlink(missing_ok=True)
            shutil.rmtree(device / kind, ignore_errors=True)
        if group := self.link(device / "iommu_group"):
            (self.groups / group).unlink(missing_ok=True)

    def _probe(self, vf: str) -> None:
        device = self.device(vf)
        card, number = self._card_of(vf)
        driver = self.read(device / "driver_override") or card.vf_driver
        if not driver:
            return
        drivers = self.sysfs / "bus/pci/drivers" / driver
        drivers.mkdir(exist_ok=True)
        (device / "driver").symlink_to(drivers)
        if driver == VFIO:
            (self.groups / self.link(device / "iommu_group")).touch(0o600)
        elif card.kind == "ethernet":
            mac = card.settings[number]["mac"]
            self._interface(vf, f"{card.interface}v{number}", mac)
        else:
            self._vf_port(card, number, vf)

    def _vf_port(self, card: FakeCard, number: int, vf: str) -> None:
        own = self.device(card.address) / "sriov" / str(number)
        guid = self.read(own / "port") if own.is_dir() else card.settings[number].get("port_guid")
        if card.kind == "mlx4":
            entry = f"infiniband/{card.rdma}/iov/ports/1/admin_guids/{number + 1}"
            asked = self.read(self.device(card.address) / entry).removeprefix("0x")
            guid = "0" * 16 if asked == "f" * 16 else asked  # as a subnet manager would grant it
        digits = (guid or ZERO).replace(":", "")
        guid = ":".join(digits[start : start + 4] for start in (0, 4, 8, 12))
        down = not digits.strip("0") or self.read(own / "policy") == "Down"
        state = "1: DOWN" if down else card.vf_state
        self._rdma(vf, f"{card.rdma}v{number}", card, state, guid)

    def _interface(self, address: str, name: str, mac: str) -> None:
        directory = self.device(address) / "net" / name
        self.files(directory, address=mac, flags="0x1002")
        (self.sysfs / "class/net" / name).symlink_to(directory)

    def _rdma(self, address: str, name: str, card: FakeCard, state: str, guid: str) -> None:
        directory = self.device(address) / "infiniband" / name
        self.files(directory, node_guid=guid)
        port = {"state": state, "phys_state": card.port_link, "sm_lid": card.subnet_manager}
        port["gids/0"] = f"fe80:0000:0000:0000:{guid}"
        port["link_layer"] = "InfiniBand"
        self.files(directory / "ports/1", **{key.replace("/", "__"): port[key] for key in port})


class FakeHelper:
    """The privileged helper's own code on a fake host, called by a user."""

    def __init__(self, host: FakeHost, user: int = 0) -> None:
        self.host = host
        self.user = user
        self.asked: list[str] = []

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        self.asked.append(operation)
        request = {"protocol": PROTOCOL, "operation": operation, **fields}
        try:
            return perform(self.host, self.user, json.loads(json.dumps(request)))
        except RefusedError as error:
            raise VicinalError(*error.args) from None


def fake_vfs(directory: Path, *cards: FakeCard, user: int = 0) -> tuple[FakeHost, Vfs]:
    """A fake host with cards, and the VFs of that host."""
    host = FakeHost(directory, *cards)
    return host, Vfs(host, FakeHelper(host, user))


def igb() -> FakeCard:
    return FakeCard("0000:01:00.0", "igb", "igbvf", interface="eth1")


def mlx5(**changes: Any) -> FakeCard:
    card = FakeCard("0000:02:00.0", "mlx5_core", "mlx5_core", "0x020700", "ib0", "mlx5_0")
    card.kind = "mlx5"
    for name, value in changes.items():
        setattr(card, name, value)
    return card


def mlx4(**changes: Any) -> FakeCard:
    card = FakeCard("0000:03:00.0", "mlx4_core", "mlx4_core", "0x028000", "ib1", "mlx4_0")
    card.kind = "mlx4"
    for name, value in changes.items():
        setattr(card, name, value)
    return card
