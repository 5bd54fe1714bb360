"""The network of a job over several hosts: root's part on one host.

    host's network      the job's, only for root         the nodes', for the user
    UDP  ────────────── vxlan0 ── bridge ── nodes  ────── uplink ── bridge ── nodes' interfaces

A VXLAN device sends frames as UDP datagrams, and its number separates networks. The root user of a
device's namespace can make the device send to other hosts, and under other numbers. So the nodes'
user gets only the end of a cable. Slurm's plugin created the namespace in between
(slurm/supervisor_network.h), and all devices here end with it.
"""

import json
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import bridge, ip
from vicinal.integrations.slurm.joining import UPLINK

_TUNNEL, _BRIDGE, _CABLE = "vxlan0", "bridge0", "nodes"
_NUMBERS = 1 << 24
"""Number of networks that VXLAN can separate."""
_HEADERS = {4: 50, 6: 70}
"""Bytes of headers before a frame, by IP version: IP, UDP, VXLAN, and Ethernet."""
_LEARNED = 1 << 14
"""Limit of learned node addresses; more than there can be."""

_Address = IPv4Address | IPv6Address


def number_of(job: int) -> int:
    """The number of a job's network.

    Slurm reuses job ids only after far more jobs than there are numbers.
    """
    return job % _NUMBERS


def join(job: int, between: Path, nodes: Path, hosts: Mapping[str, str], port: int) -> None:
    """Connect the nodes' network to the networks of the job's other hosts.

    `between` and `nodes` are files of network namespaces. `hosts` maps the names of the other hosts
    to the addresses by which Slurm reaches them. Raises VicinalError; devices that were created end
    with `between`.
    """
    addresses = _addresses_of_all(hosts)
    mtu = min(_room(name, address) for name, address in addresses.items())
    number = number_of(job)
    tunnel = f"type vxlan id {number} dstport {port} maxaddress {_LEARNED}"
    others = list(addresses.values())
    if others[0].version == 6:  # without a remote IPv6 address, the tunnel would use IPv4
        tunnel += f" remote {others.pop(0)}"
    _make(
        number,
        f"link add {_TUNNEL} mtu {mtu} netns {between} {tunnel}",
        f"link add {_CABLE} mtu {mtu} netns {between} type veth peer name {UPLINK} mtu {mtu} "
        f"netns {nodes}",
    )
    ports = [
        line
        for each in (_TUNNEL, _CABLE)
        for line in (
            f"link set {each} addrgenmode none",
            f"link set {each} master {_BRIDGE}",
            # A bridge with two ports needs no learning, and users could fill its table with forged
            # addresses.
            f"link set {each} type bridge_slave learning off",
        )
    ]
    ip(
        ["-batch", "-"],
        between,
        lines=[
            f"link add {_BRIDGE} type bridge mcast_snooping 0",
            f"link set {_BRIDGE} addrgenmode none",
            *ports,
            f"link set {_CABLE} up",
            f"link set {_BRIDGE} up",
        ],
    )
    everybody = "00:00:00:00:00:00"
    bridge(
        ["-batch", "-"],
        between,
        lines=[f"fdb append {everybody} dev {_TUNNEL} dst {address}" for address in others],
    )
    _open(between, port)


def addresses_of(name: str, node_address: str) -> dict[int, _Address]:
    """The addresses of a host by IP version, resolved from `node_address`, Slurm's NodeAddr.

    Raises VicinalError if no address can be reached from other hosts.
    """
    remedy = f"set NodeAddr of {name} in slurm.conf to an address that all hosts reach"
    try:
        found = socket.getaddrinfo(node_address, None, socket.AF_UNSPEC, socket.SOCK_DGRAM)
    except OSError as error:
        raise VicinalError(
            f"the address of the host {name!r} is unknown ({node_address!r}: {error.strerror})",
            remedy,
        ) from error
    addresses: dict[int, _Address] = {}
    for each in found:
        address = ip_address(str(each[4][0]).partition("%")[0])
        if not (address.is_loopback or address.is_unspecified or address.is_multicast) and not (
            address.version == 6 and address.is_link_local
        ):
            addresses.setdefault(address.version, address)
    if not addresses:
        raise VicinalError(
            f"other hosts cannot reach the host {name!r} at {found[0][4][0]}", remedy
        )
    return addresses


def _addresses_of_all(hosts: Mapping[str, str]) -> dict[str, _Address]:
    """One address of each host, all of the same IP version.

    Each of the job's hosts must choose the same version. Raises VicinalError if no version fits
    all.
    """
    found = {name: addresses_of(name, node_address) for name, node_address in hosts.items()}
    for version in (4, 6):
        if all(version in each and _is_routed(each[version]) for each in found.values()):
            return {name: each[version] for name, each in found.items()}
    shown = ", ".join(
        f"{name} at {' and '.join(map(str, each.values()))}" for name, each in found.items()
    )
    raise VicinalError(
        f"neither IPv4 nor IPv6 reaches all hosts of the job: {shown}",
        "set NodeAddr in slurm.conf to addresses of one IP version that all hosts have",
    )


def _is_routed(address: _Address) -> bool:
    """Whether this host has a route to the address: it may have no address of that version
    itself.
    """
    try:
        ip(["-j", "route", "get", str(address)])
    except VicinalError:
        return False
    return True


def _room(name: str, address: _Address) -> int:
    """The MTU of the nodes' frames to a host: the route's MTU less the headers.

    Raises VicinalError if the address is this host's own.
    """
    (route,) = json.loads(ip(["-j", "route", "get", str(address)]))
    if route.get("type") == "local":
        raise VicinalError(
            f"the host {name!r} has the address {address}, which is this host's own address",
            "give each host an address of its own, or give the job one host (srun -N1)",
        )
    (device,) = json.loads(ip(["-j", "link", "show", "dev", route["dev"]]))
    bounds = [each["mtu"] for each in (device, *route.get("metrics", ())) if "mtu" in each]
    return int(min(bounds)) - _HEADERS[address.version]


def _make(number: int, *lines: str) -> None:
    try:
        ip(["-batch", "-"], lines=lines)
    except VicinalError as error:
        if "Unknown device type" in error.message or "not supported" in error.message:
            raise VicinalError(
                "the kernel of this host has no VXLAN, which nodes of several hosts need",
                "load its module (modprobe vxlan), or let such nodes use the hosts' network: "
                "`vicinal slurm install --host-network`",
            ) from error
        if "VNI already exists" in error.message:
            raise VicinalError(
                f"a network on this host already has the number {number} of this job's network",
                "start the job again after the job with that number has ended, or remove the other "
                "network, or choose another port: `vicinal slurm install --network-port`",
            ) from error
        raise


def _open(between: Path, port: int) -> None:
    try:
        ip(["link", "set", _TUNNEL, "up"], between)
    except VicinalError as error:
        if "in use" in error.message:
            raise VicinalError(
                f"a process of this host uses the UDP port {port}, which jobs' networks need",
                "end the process, or choose another port: `vicinal slurm install --network-port`",
            ) from error
        raise
