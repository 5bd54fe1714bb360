"""The networks of a cluster's virtual machines: their own, and the host's that they are linked to.

Their own leads nowhere else. Where libvirt may make taps, the machines are at a bridge of the
host's. Elsewhere there is a wire between each two of them: a pair of Unix sockets that their QEMUs
exchange frames by. That needs no rights, no process of ours that would have to be looked after, and
nobody else can listen or speak there, as at a multicast group. Each machine has a card for each
wire then, one address on the first of them, and a route to each neighbour by the card that leads
there.

Machines of a cluster over several hosts are always joined by wires. Those between machines of
different hosts are of UDP: that needs no rights either, but whoever is in the hosts' network can
listen and speak there.
"""

import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.file.hosts import Share
from vicinal.cluster.nodes.vm.layout import Files
from vicinal.cluster.vm.devices import Bridge, Interface, Tap, UdpWire, Wire
from vicinal.cluster.vm.guest.identity import Card, card_address
from vicinal.cluster.vm.image.layout import guest_address

MOST_WIRED = 64
"""Machines that wires join: each has a PCI device for each of the others."""

_FIRST_PORT = 10240
_PORTS = 16384
"""Where the ports of a cluster begin that names none: below those that kernels give away."""


@dataclass(frozen=True)
class FarMachine:
    """A machine of another host, as one of this host is joined with it."""

    number: int
    own: str
    """IPv4 address of this host."""
    other: str
    """That of the other."""
    port: int
    """On both."""

    def check(self) -> None:
        """Raise VicinalError where this host's end of the wire cannot be had."""
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.bind((self.own, self.port))
        except OSError as error:
            raise VicinalError(
                f"UDP port {self.port} of {self.own} cannot be had ({describe_os_error(error)})",
                "let the file name another port, and each host's own address",
            ) from error


@dataclass(frozen=True)
class Link:
    """A machine's card in a network of the host's: at a bridge, or by a tap, that are there."""

    mac: str
    bridge: str | None = None
    tap: str | None = None
    address: str | None = None
    """IPv4 address, and the length of its network: 10.1.0.1/24."""

    @property
    def interface(self) -> Interface:
        """The card, as its domain has it."""
        if self.tap is not None:
            return Tap(self.tap, self.mac)
        return Bridge(str(self.bridge), self.mac)


def bridge_for(owner: str, uri: str, machines: int) -> str | None:
    """Name of the bridge for so many machines of UID-CLUSTER; None: they are joined by wires.

    Raises VicinalError where there are too many for that.
    """
    if urlsplit(uri).path == "/system" and machines > 2:
        # A network interface has 15 letters at most.
        return f"vicinal-{hashlib.sha256(owner.encode()).hexdigest()[:7]}"
    if machines > MOST_WIRED:
        raise VicinalError(
            f"{machines} virtual machines cannot be joined by wires, {MOST_WIRED} can",
            "use a system libvirt (as root, hypervisor: qemu:///system), which has bridges",
        )
    return None


def check_wired(machines: int) -> None:
    """Raise VicinalError for more machines on several hosts than wires can join."""
    if machines > MOST_WIRED:
        raise VicinalError(
            f"{machines} virtual machines on several hosts cannot be joined by wires, "
            f"{MOST_WIRED} can",
            "make them fewer and larger",
        )


def first_port(cluster: str) -> int:
    """The first UDP port of a cluster that names none, the same whenever it is asked for."""
    return _FIRST_PORT + int(hashlib.sha256(cluster.encode()).hexdigest(), 16) % _PORTS


def far_machines(share: Share, number: int) -> tuple[FarMachine, ...]:
    """The machines of other hosts that the one of this number is joined with."""
    own = share.machines[number]
    if share.bridge is not None:
        return ()
    return tuple(
        FarMachine(
            peer,
            share.addresses[own.host],
            share.addresses[other.host],
            share.port + _pair(number, peer),
        )
        for peer, other in enumerate(share.machines)
        if other.host != own.host and own.joined and other.joined
    )


def _pair(number: int, peer: int) -> int:
    """The number of a pair of machines, whichever of them is named first."""
    low, high = sorted((number, peer))
    return high * (high - 1) // 2 + low


def interfaces(
    files: Files,
    number: int,
    peers: tuple[int, ...],
    bridge: str | None,
    link: Link | None,
    far: Sequence[FarMachine] = (),
) -> tuple[Interface, ...]:
    """The cards of a machine, as its domain has them; `peers` are those that it is joined with."""
    outside = () if link is None else (link.interface,)
    if bridge is not None:
        return (Bridge(bridge, card_address(number)), *outside)
    beyond = {each.number: each for each in far}
    return (*(_wire(files, number, peer, beyond) for peer in peers), *outside)


def _wire(files: Files, number: int, peer: int, far: Mapping[int, FarMachine]) -> Interface:
    mac = card_address(number, peer)
    there = far.get(peer)
    if there is None:
        return Wire(files.wire(number, peer), files.wire(peer, number), mac)
    return UdpWire(there.own, there.other, there.port, mac)


def cards(
    number: int, peers: tuple[int, ...], bridge: str | None, link: Link | None
) -> tuple[Card, ...]:
    """What these lead to, as the guest is told."""
    outside = () if link is None else (Card(link.mac, network=link.address or ""),)
    if bridge is not None:
        return (Card(card_address(number)), *outside)
    wires = (Card(card_address(number, peer), guest_address(peer)) for peer in peers)
    return (*wires, *outside)
