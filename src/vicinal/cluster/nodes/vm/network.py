"""The networks of a cluster's virtual machines: their own, and links to networks of the host.

The VMs' own network is isolated. If libvirt may create taps, a bridge of the host joins the
VMs. Otherwise a wire joins each pair of VMs: a pair of Unix sockets by which their QEMUs
exchange frames. A wire needs no privileges and no process of Vicinal that must be supervised. No
other program can listen or send on it, unlike on a multicast group. Each VM then has a card
for each wire, one address on the first card, and a route to each peer through the card of its wire.

VMs of a cluster over several hosts are joined by wires, or by the bridges that the cluster
file names. Wires between VMs of different hosts use UDP. UDP needs no privileges either, but
all programs in the hosts' network can listen and send there.
"""

import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.file.hosts import HostPart
from vicinal.cluster.nodes.vm.layout import Files
from vicinal.cluster.vm.devices import Bridge, Interface, Tap, UdpWire, Wire
from vicinal.cluster.vm.guest.identity import Card, card_address
from vicinal.cluster.vm.image.layout import guest_address

MOST_WIRED = 64
"""Maximum number of VMs that wires join: each VM has a PCI device for each peer."""

_FIRST_PORT = 10240
_PORTS = 16384
"""Range of the default first port of a cluster: below the ports that kernels assign."""


@dataclass(frozen=True)
class FarVm:
    """A VM on another host, and this host's end of the UDP wire to it."""

    number: int
    own: str
    """IPv4 address of this host."""
    other: str
    """IPv4 address of the other host."""
    port: int
    """UDP port, the same on both hosts."""

    def check(self) -> None:
        """Raise VicinalError if this host cannot bind its end of the wire."""
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.bind((self.own, self.port))
        except OSError as error:
            raise VicinalError(
                f"UDP port {self.port} of {self.own} cannot be used ({describe_os_error(error)})",
                "name another port in the cluster file, and for each host an address of its own",
            ) from error


@dataclass(frozen=True)
class Link:
    """A VM's card in a network of the host, at an existing bridge or tap."""

    mac: str
    bridge: str | None = None
    tap: str | None = None
    address: str | None = None
    """IPv4 address with the prefix length of its network: 10.1.0.1/24."""

    @property
    def interface(self) -> Interface:
        """The card as a device of its domain."""
        if self.tap is not None:
            return Tap(self.tap, self.mac)
        return Bridge(str(self.bridge), self.mac)


def bridge_for(owner: str, uri: str, vms: int) -> str | None:
    """Name of the bridge for this number of VMs of UID-CLUSTER; None: wires join them.

    Raises VicinalError if there are too many VMs for wires.
    """
    if urlsplit(uri).path == "/system" and vms > 2:
        # The kernel limits the name of a network interface to 15 characters.
        return f"vicinal-{hashlib.sha256(owner.encode()).hexdigest()[:7]}"
    if vms > MOST_WIRED:
        raise VicinalError(
            f"{vms} virtual machines need a bridge: wires join at most {MOST_WIRED}",
            "use a system libvirt, which has bridges: as root, set `hypervisor: qemu:///system`",
        )
    return None


def check_wired(vms: int) -> None:
    """Raise VicinalError if there are more VMs on several hosts than wires can join."""
    if vms > MOST_WIRED:
        raise VicinalError(
            f"{vms} virtual machines on several hosts are too many: wires join at most "
            f"{MOST_WIRED}",
            "use fewer and larger VMs",
        )


def first_port(cluster: str) -> int:
    """The first UDP port of a cluster whose file names none; the same at each call."""
    return _FIRST_PORT + int(hashlib.sha256(cluster.encode()).hexdigest(), 16) % _PORTS


def far_vms(host_part: HostPart, number: int) -> tuple[FarVm, ...]:
    """The VMs on other hosts that are joined to the VM with this number."""
    own = host_part.vms[number]
    if host_part.bridge is not None:
        return ()
    return tuple(
        FarVm(
            peer,
            host_part.addresses[own.host],
            host_part.addresses[other.host],
            host_part.port + _pair(number, peer),
        )
        for peer, other in enumerate(host_part.vms)
        if other.host != own.host and own.joined and other.joined
    )


def _pair(number: int, peer: int) -> int:
    """The number of a pair of VMs, independent of their order."""
    low, high = sorted((number, peer))
    return high * (high - 1) // 2 + low


def interfaces(
    files: Files,
    number: int,
    peers: tuple[int, ...],
    bridge: str | None,
    link: Link | None,
    far: Sequence[FarVm] = (),
) -> tuple[Interface, ...]:
    """The cards of a VM as devices of its domain; `peers` are the VMs joined to it."""
    outside = () if link is None else (link.interface,)
    if bridge is not None:
        return (Bridge(bridge, card_address(number)), *outside)
    beyond = {each.number: each for each in far}
    return (*(_wire(files, number, peer, beyond) for peer in peers), *outside)


def _wire(files: Files, number: int, peer: int, far: Mapping[int, FarVm]) -> Interface:
    mac = card_address(number, peer)
    there = far.get(peer)
    if there is None:
        return Wire(files.wire(number, peer), files.wire(peer, number), mac)
    return UdpWire(there.own, there.other, there.port, mac)


def cards(
    number: int, peers: tuple[int, ...], bridge: str | None, link: Link | None
) -> tuple[Card, ...]:
    """The same cards as the guest's identity describes them."""
    outside = () if link is None else (Card(link.mac, network=link.address or ""),)
    if bridge is not None:
        return (Card(card_address(number)), *outside)
    wires = (Card(card_address(number, peer), guest_address(peer)) for peer in peers)
    return (*wires, *outside)
