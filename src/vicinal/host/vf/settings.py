"""Settings of a virtual function: the user's notation and the privileged helper's.

The result has only the settings that the user chose, because a driver that does not know one
setting refuses all of them.
"""

import re
from dataclasses import dataclass
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.vf.sysfs import INFINIBAND, PhysicalFunction, plain_guid

LINK_STATES = ("auto", "enable", "disable")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_MOST_RATE = (1 << 24) - 1


@dataclass(frozen=True)
class Settings:
    """The user's settings; None for a setting that the user did not choose."""

    mac: str | None = None
    vlan: int | None = None
    """0 for no VLAN."""
    qos: int | None = None
    """Priority of the VF's outgoing traffic; needs `vlan`."""
    spoof_check: bool | None = None
    trust: bool | None = None
    min_rate: int | None = None
    """Mbit/s, like `max_rate`; 0 for no limit."""
    max_rate: int | None = None
    link_state: str | None = None
    """One of LINK_STATES: as the card's port, always up, or never up. InfiniBand calls this the
    policy."""
    node_guid: str | None = None
    port_guid: str | None = None
    pkey: int | None = None
    """Partition key, with or without the bit for full members."""
    port: int | None = None
    """Number of the port of a card with two ports, from 1; mlx4 only."""

    def for_card(self, card: PhysicalFunction) -> dict[str, Any]:
        """Return the helper's settings, except `pkey`, whose index is in the card's table.

        Raises VicinalError for a setting that this kind of card does not have, and for an invalid
        value.
        """
        infiniband = card.kind == INFINIBAND
        self._check_kind(card, infiniband=infiniband)
        values: dict[str, Any] = {
            "mac": None if self.mac is None else parse_mac(self.mac),
            "vlan": _within("VLAN", self.vlan, 4094),
            "qos": _within("priority", self.qos, 7),
            "spoofchk": self.spoof_check,
            "trust": self.trust,
            "min_tx_rate": _within("rate", self.min_rate, _MOST_RATE),
            "max_tx_rate": _within("rate", self.max_rate, _MOST_RATE),
            "node_guid": None if self.node_guid is None else parse_guid(self.node_guid),
            "port_guid": None if self.port_guid is None else parse_guid(self.port_guid),
            # Set after the GUIDs, so that the port comes up with them.
            "policy" if infiniband else "state": _link_state(self.link_state),
            "port": self.port,
        }
        if self.port is not None and card.driver != "mlx4_core":
            raise VicinalError(
                f"{card.address} is no mlx4 card, and --port cannot be set there",
                "name the VF of the card's other port",
            )
        if self.qos is not None and self.vlan is None:
            raise VicinalError("a priority was given without a VLAN", "give both --qos and --vlan")
        low, high = self.min_rate or 0, self.max_rate or 0
        if high and low > high:
            raise VicinalError(
                f"the least rate, {low} Mbit/s, is above the highest, {high}", "swap the two rates"
            )
        return {name: value for name, value in values.items() if value is not None}

    def _check_kind(self, card: PhysicalFunction, *, infiniband: bool) -> None:
        ethernet_only = {
            "--mac": self.mac,
            "--vlan": self.vlan,
            "--qos": self.qos,
            "--spoof-check": self.spoof_check,
            "--trust": self.trust,
            "--min-rate": self.min_rate,
            "--max-rate": self.max_rate,
        }
        infiniband_only = {
            "--node-guid": self.node_guid,
            "--port-guid": self.port_guid,
            "--pkey": self.pkey,
            "--port": self.port,
        }
        wrong = ethernet_only if infiniband else infiniband_only
        named = [name for name, value in wrong.items() if value is not None]
        if named:
            raise VicinalError(
                f"{card.address} is an {'InfiniBand' if infiniband else 'Ethernet'} card, and"
                f" {' and '.join(named)} cannot be set there",
                "leave out these options, or name another card",
            )


def parse_mac(text: str) -> str:
    """Return a unicast hardware address in lower case with colons. Raises VicinalError for other
    text."""
    mac = text.lower().replace("-", ":")
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00":
        raise VicinalError(
            f"{text} is no hardware address of an interface",
            "give six bytes, such as 52:54:00:12:34:56, the first of them even",
        )
    return mac


def parse_guid(text: str) -> str:
    """Return a GUID as eight bytes with colons. Raises VicinalError for an invalid GUID."""
    digits = text.lower().removeprefix("0x").replace(":", "").replace("-", "")
    guid = plain_guid(digits) if re.fullmatch("[0-9a-f]*", digits) else ""
    # mlx4 interprets these two GUIDs as requests: choose a GUID, and delete the GUID.
    if not guid or set(digits) in ({"0"}, {"f"}):
        raise VicinalError(
            f"{text} is no GUID", "give eight bytes, such as 00:11:22:33:44:55:66:77"
        )
    return guid


def _within(what: str, value: int | None, most: int) -> int | None:
    if value is not None and not 0 <= value <= most:
        raise VicinalError(f"{value} is no {what}", f"give one from 0 to {most}")
    return value


def _link_state(state: str | None) -> str | None:
    if state is not None and state not in LINK_STATES:
        raise VicinalError(f"{state} is no link state", f"give one of {', '.join(LINK_STATES)}")
    return state
