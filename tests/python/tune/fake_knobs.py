"""A stand-in for network cards that the tests do not have: answers of their drivers.

The state is a file, so that values outlive the process that set them, as they do in a kernel. The
stand-in shows how the tuner handles such answers, and nothing about real cards.
"""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_host import FakeHost

from vicinal.host.system import Host
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.knobs.netlink import RefusedError
from vicinal.labs.tune.knobs.network import Link

BEFORE = {"rx-usecs": 3, "rx-frames": 88, "adaptive-rx": 1, "tx-usecs": 5}
QUEUES = {"combined-max": 4, "combined": 4}


class FakeEthtool:
    """Cards whose drivers refuse, ignore or change values as configured."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def put(self, interface: str, **values: Any) -> None:
        """Set `coalescing`, `channels`, and their limits `refuses`, `ignores` and `most`."""
        cards = self._cards()
        cards.setdefault(interface, {}).update(values)
        self._write(cards)

    def coalescing(self, interface: str) -> Mapping[str, int]:
        return self._part(interface, "coalescing")

    def set_coalescing(self, interface: str, name: str, value: int) -> None:
        self._set(interface, "coalescing", name, value)

    def channels(self, interface: str) -> Mapping[str, int]:
        return self._part(interface, "channels")

    def set_channels(self, interface: str, name: str, value: int) -> None:
        self._set(interface, "channels", name, value)

    def _cards(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return found

    def _write(self, cards: Mapping[str, Any]) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(cards))
        fresh.rename(self.file)

    def _part(self, interface: str, part: str) -> Mapping[str, int]:
        cards = self._cards()
        if interface not in cards:
            raise RefusedError(f"there is no interface {interface}", "look", errno.ENODEV)
        if part not in cards[interface]:
            raise RefusedError(f"{interface} has none", "leave it", errno.EOPNOTSUPP)
        found: dict[str, int] = cards[interface][part]
        return found

    def _set(self, interface: str, part: str, name: str, value: int) -> None:
        cards = self._cards()
        card = cards[interface]
        if name in card.get("refuses", ()):
            raise RefusedError(f"the driver of {interface} refuses it", "leave it", errno.EINVAL)
        if name in card.get("down", ()):
            raise RefusedError(f"{interface} is down", "see why", errno.ENETDOWN)
        if name not in card.get("ignores", ()):
            card[part][name] = min(value, card.get("most", {}).get(name, value))
            self._write(cards)


class FakeNetwork:
    """Interfaces and routes that a test defines."""

    def __init__(self, *links: Link) -> None:
        self.found = list(links)
        self.defaults: list[str] = []
        self.routes: dict[str, str] = {}
        self.namespace = 4026531840

    def links(self) -> list[Link]:
        return self.found

    def default_routes(self) -> list[str]:
        return self.defaults

    def route_to(self, address: str) -> str:
        return self.routes.get(address, "")


def fake_host(root: Path, boot: str = "first") -> Host:
    """A host in its first boot, with two processors and root's capabilities."""
    fake = FakeHost(root)
    fake.file("proc/sys/kernel/random/boot_id", boot)
    fake.file("proc/self/status", "CapEff:\t000001ffffffffff")
    fake.file("sys/devices/system/cpu/online", "0-1")
    return fake.host(0)


def fake_tuned_host(root: Path) -> TunedHost:
    """A host with a card, eth0, and another card, eth1, without interrupt moderation."""
    host = fake_host(root / "host")
    ethtool = FakeEthtool(root / "cards.json")
    ethtool.put("eth0", coalescing=dict(BEFORE), channels=dict(QUEUES))
    ethtool.put("eth1", channels={"rx-max": 2, "rx": 1, "tx-max": 2, "tx": 1})
    return TunedHost(ethtool, FakeNetwork(Link("eth0", 2), Link("eth1", 3)), host)


def same_tuned_host(root: Path, boot: str = "first") -> TunedHost:
    """The host of fake_tuned_host() as another process finds it."""
    (root / "host/proc/sys/kernel/random/boot_id").write_text(f"{boot}\n")
    ethtool = FakeEthtool(root / "cards.json")
    host = Host(root=root / "host", search=str(root / "host/programs"), user=0)
    return TunedHost(ethtool, FakeNetwork(Link("eth0", 2), Link("eth1", 3)), host)
