"""The network of a job over several hosts: what root makes of it on one of them.

    host's network      the job's, root's alone          the nodes', the user's
    UDP  ────────────── vxlan0 ── bridge ── nodes  ────── uplink ── bridge ── nodes' interfaces

A VXLAN device sends frames as datagrams, and its number tells networks apart. Whoever has rights in
the network that it is in can have it send to other hosts, and under other numbers. So the nodes'
user gets the end of a cable. Slurm's plugin has made the network between (slurm/keeper_network.h),
and all that is made here ends with it.
"""

import json
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path

from vicinal.cluster.host_network import bridge, ip
from vicinal.errors import VicinalError
from vicinal.slurm.joining import UPLINK

_TUNNEL, _BRIDGE, _CABLE = "vxlan0", "bridge0", "nodes"
_NUMBERS = 1 << 24
"""So many networks a VXLAN can tell apart."""
_HEADERS = 50
"""Bytes before a frame: IPv4, UDP and VXLAN, and Ethernet's own."""
_LEARNED = 1 << 14
"""Addresses of nodes that the tunnel keeps, more than there can be."""


def number_of(job: int) -> int:
    """The network of a job. Slurm gives numbers of jobs anew much later than it comes round."""
    return job % _NUMBERS


def join(job: int, between: Path, nodes: Path, hosts: Mapping[str, str], port: int) -> None:
    """Join the nodes' network with those of the job's other hosts.

    `between` and `nodes` are files that stand for networks, `hosts` names of the other hosts and
    where Slurm reaches them. Raises VicinalError; what was made ends with `between`.
    """
    addresses = {name: address_of(name, place) for name, place in hosts.items()}
    mtu = min(_room(name, address) for name, address in addresses.items())
    number = number_of(job)
    tunnel = f"type vxlan id {number} dstport {port} maxaddress {_LEARNED}"
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
            # Of two ports each is the other's only way: addresses that users make up cost nothing.
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
        lines=[
            f"fdb append {everybody} dev {_TUNNEL} dst {address}" for address in addresses.values()
        ],
    )
    _open(between, port)


def address_of(name: str, place: str) -> IPv4Address:
    """Where a host is reached that Slurm reaches at `place`. Raises VicinalError."""
    remedy = f"set NodeAddr of {name} in slurm.conf to an address that all hosts reach"
    try:
        found = socket.getaddrinfo(place, None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise VicinalError(
            f"no IPv4 address is known of the host {name} ({place}: {error.strerror})", remedy
        ) from error
    address = IPv4Address(found[0][4][0])
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise VicinalError(f"the host {name} would be reached at {address}", remedy)
    return address


def _room(name: str, address: IPv4Address) -> int:
    """The largest frame's bytes, but for Ethernet's, that reach a host whole."""
    (route,) = json.loads(ip(["-j", "route", "get", str(address)]))
    if route.get("type") == "local":
        raise VicinalError(
            f"the host {name} is reached at {address}, which this host has itself",
            "let each host have an address of its own, or give the job one host (srun -N1)",
        )
    (device,) = json.loads(ip(["-j", "link", "show", "dev", route["dev"]]))
    bounds = [each["mtu"] for each in (device, *route.get("metrics", ())) if "mtu" in each]
    return int(min(bounds)) - _HEADERS


def _make(number: int, *lines: str) -> None:
    try:
        ip(["-batch", "-"], lines=lines)
    except VicinalError as error:
        if "Unknown device type" in error.message or "not supported" in error.message:
            raise VicinalError(
                "the kernel of this host knows no VXLAN, which nodes of several hosts need",
                "load its module (modprobe vxlan), or let such nodes have the hosts' network: "
                "`vicinal slurm install --host-network`",
            ) from error
        if "VNI already exists" in error.message:
            raise VicinalError(
                f"there is a network of the number {number} on this host, which this job's would "
                "have",
                "start the job again when the job of that number has ended, or end what else has "
                "it, or choose another port: `vicinal slurm install --network-port`",
            ) from error
        raise


def _open(between: Path, port: int) -> None:
    try:
        ip(["link", "set", _TUNNEL, "up"], between)
    except VicinalError as error:
        if "in use" in error.message:
            raise VicinalError(
                f"a process of this host has the UDP port {port}, which jobs' networks need",
                "end it, or choose another port: `vicinal slurm install --network-port`",
            ) from error
        raise
