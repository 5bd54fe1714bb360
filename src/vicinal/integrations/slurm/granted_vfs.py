"""A job's SR-IOV VFs for its nodes: root's work before the job's user gets a VF.

The root user of an interface's network namespace can change the hardware address, tag frames,
receive other stations' frames, and move the interface elsewhere. So the card must bind the VF
to one address and to one VLAN. Root releases the VF by its PCI address, in whatever
namespace its interface is then (docs/how-to/slurm.md).

    vfs-JOB.nodes     a line for each VF; the plugin passes it to the supervisor
"""

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import (
    ETHERNET,
    PhysicalFunction,
    VirtualFunction,
    find_card,
)

_NO_ADDRESS = "00:00:00:00:00:00"
_NONE = "-"


@dataclass(frozen=True)
class GrantedVf:
    """A VF as the supervisor of a job's nodes knows it."""

    address: str
    """The PCI address."""
    kind: str
    """ETHERNET: a node gets the interface; INFINIBAND: nodes see only the RDMA device."""
    cards: tuple[str, ...]
    """All names of the card, the PCI address first."""
    devices: tuple[str, ...]
    """The VF's RDMA devices."""
    files: tuple[str, ...]
    """Names of the RDMA devices' files in /dev/infiniband, for programs."""
    driver: str
    """The VF's driver on this host."""
    mac: str
    """The hardware address that the card sets; empty for InfiniBand."""

    @property
    def line(self) -> str:
        """The VF as one line; the plugin reads the first two words
        (slurm/node_vfs.h).
        """
        lists = (",".join(words) or _NONE for words in (self.cards, self.devices, self.files))
        return " ".join([self.address, self.kind, *lists, self.driver or _NONE, self.mac or _NONE])

    @classmethod
    def parse(cls, line: str) -> Self:
        """The inverse of `line`."""
        address, kind, *rest = line.split(" ")
        cards, devices, files = (_words(text) for text in rest[:3])
        driver, mac = (",".join(_words(text)) for text in rest[3:])
        return cls(address, kind, cards, devices, files, driver, mac)


def _words(text: str) -> tuple[str, ...]:
    return () if text == _NONE else tuple(text.split(","))


def granted(vfs: Vfs, given: Sequence[VirtualFunction]) -> list[GrantedVf]:
    """The lines' data of VFs that are configured. Raises VicinalError if one has no
    interface.
    """
    cards = vfs.cards()
    return [_granted(vfs, find_card(cards, each.physical), each) for each in given]


def _granted(vfs: Vfs, card: PhysicalFunction, vf: VirtualFunction) -> GrantedVf:
    if card.kind == ETHERNET and not vf.interfaces:
        raise VicinalError(
            f"{vf.address} of {card.address} has no network interface",
            "check that its driver is loaded, and see `dmesg`",
        )
    return GrantedVf(
        vf.address,
        card.kind,
        (card.address, *sorted(card.names - {card.address})),
        tuple(dict.fromkeys(port.device for port in vf.ports)),
        # Not the files of management (umad): their user could act for the subnet manager.
        tuple(vfs.host.names(vf.address, "infiniband_verbs")),
        vf.driver,
        vf.settings.get("mac", "") if card.kind == ETHERNET else "",
    )


def bounds(vfs: Vfs, owner: str, vf: VirtualFunction, vlan: int | None) -> Settings:
    """The settings to which the card must bind a VF; `vlan` None: the VLAN that it has now.

    Raises VicinalError if `vlan` is None and the VF is in no VLAN.
    """
    card = find_card(vfs.cards(), vf.physical)
    if card.kind != ETHERNET:
        return Settings()
    named = next(iter(card.interfaces), card.address)
    if vlan is None and vf.settings.get("vlan") in (None, "0"):
        raise VicinalError(
            f"{vf.address} of {named} is in no VLAN of the card, and root in a job's nodes "
            "could send any frame to the card's network",
            "let the card tag the VF's frames (`ip link set dev "
            f"{named} vf {vf.number} vlan NUMBER`, for each VF), or give each job a "
            "VLAN (`vicinal slurm install --vlans`), or start the job without nodes",
        )
    mac = vf.settings.get("mac", _NO_ADDRESS)
    if mac == _NO_ADDRESS:  # otherwise an administrator has set an address
        digest = hashlib.sha256(
            "/".join([socket.gethostname(), vf.address, owner]).encode()
        ).hexdigest()
        digits = "02" + digest[:10]
        mac = ":".join(digits[start : start + 2] for start in range(0, len(digits), 2))
    return Settings(mac=mac, vlan=vlan, spoof_check=True, trust=False)


def check_bounds(vfs: Vfs, vf: VirtualFunction) -> None:
    """Raise VicinalError unless the card's driver reports the settings of bounds()."""
    card = find_card(vfs.cards(), vf.physical)
    if card.kind != ETHERNET:
        return
    for name, wanted in (("spoofchk", "on"), ("trust", "off")):
        if vf.settings.get(name) != wanted:
            raise VicinalError(
                f"the driver of {vf.physical} does not report that {name} of "
                f"{vf.address} is {wanted}, and a job's nodes need this bound",
                "start the job without nodes",
            )
