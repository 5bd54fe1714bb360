"""The network of a node: a network namespace, and a veth pair to the bridge in the head."""

import ipaddress
import json
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.layout import HEAD, PREFIX_BITS, head_address, node_address
from vicinal.cluster.nodes.network import BRIDGE, INTERFACE, find_tool, host_names

_DIRECTORY = "/run/netns"

# Few processes, because this script takes half of the time of creating a node. An IPv6 link-local
# address in the node's network would be tentative for the first seconds, and an MPI library may
# choose it. So IPv6 is disabled.
_CONNECT = f"""
set -e
ip -batch - <<EOF
netns add $1
link add $2 $4 type veth peer name {INTERFACE} $4 netns $1
link set $2 master {BRIDGE} up
EOF
exec nsenter --net={_DIRECTORY}/"$1" sh -c '
    for scope in all default; do
        switch=/proc/sys/net/ipv6/conf/$scope/disable_ipv6
        [ ! -e $switch ] || echo 1 > $switch
    done
    exec ip -batch -' <<EOF
link set lo up
address add $3/{PREFIX_BITS} dev {INTERFACE}
link set {INTERFACE} up
EOF
"""

_PLUG_IN = f"""
set -e
ip -batch - <<EOF
address flush dev {BRIDGE}
address add $2/{PREFIX_BITS} dev {BRIDGE}
link set $1 master {BRIDGE} up
EOF
exec ip -j link show dev "$1"
"""

_ADOPT = f"""
set -e
exec nsenter --net={_DIRECTORY}/"$1" ip -batch - <<EOF
link set dev $2 name $3
$4
link set dev $3 up
EOF
"""

# The node's name must still resolve to an address of the node.
_ALONE = f"""
set -e
ip netns add "$1"
exec nsenter --net={_DIRECTORY}/"$1" ip -batch - <<EOF
link set lo up
address add $2/32 dev lo
EOF
"""

_DISCONNECT = f"""
if ip link show "$2" > /dev/null 2>&1; then ip link delete "$2"; fi
if [ -e {_DIRECTORY}/"$1" ]; then ip netns delete "$1"; fi
"""


def plug_in(head: Head, interface: str, address: str) -> int:
    """Attach an interface of the head's network to the bridge, and give the bridge `address`.

    Returns the interface's MTU in bytes. Raises VicinalError.
    """
    said = head.run(["sh", "-c", _PLUG_IN, "plug", interface, address])
    return int(json.loads(said)[0]["mtu"])


def connect(
    head: Head, node: str, address: str, *, joined: bool = True, mtu: int | None = None
) -> None:
    """Create the network namespace of a node, with a veth pair to the bridge if `joined`.

    Without `joined`, the node has only its loopback interface, which gets `address`. `mtu` is in
    bytes, by default Ethernet's. If nodes share the host's network, nothing is created. Raises
    VicinalError if the network cannot be created.
    """
    if not head.network and not joined:
        raise VicinalError(
            f"{node} must have no network, but nodes of this cluster share the host's network",
            "see `vicinal status` for the reason, or remove its network setting",
        )
    if head.network:
        if find_tool("ip") is None:
            raise VicinalError("the tool ip was not found", "install iproute2")
        if joined:
            bound = "" if mtu is None else f"mtu {mtu}"
            head.run(["sh", "-c", _CONNECT, "connect", node, _cable(address), address, bound])
        else:
            head.run(["sh", "-c", _ALONE, "connect", node, address])


def adopt(head: Head, node: str, given: str, name: str, address: str | None) -> None:
    """Rename an interface in a node's network from `given` to `name`, add `address`, and set it up.

    Raises VicinalError.
    """
    line = "" if address is None else f"address add {address} dev {name}"
    head.run(["sh", "-c", _ADOPT, "adopt", node, given, name, line])


def disconnect(head: Head, node: str, address: str) -> None:
    """Remove the network of a node, even if only parts of it exist. Raises VicinalError."""
    if head.network:
        head.run(["sh", "-c", _DISCONNECT, "disconnect", node, _cable(address)])


def namespace(head: Head, node: str) -> str | None:
    """Return the head's file of a node's network namespace.

    None if nodes share the host's network.
    """
    return f"{_DIRECTORY}/{node}" if head.network else None


def choose_address(head: Head, wanted: str | None, taken: dict[str, str]) -> str:
    """Return the address `wanted`, or the first free address.

    `taken` has the addresses of existing nodes by name. Raises VicinalError if `wanted` is not
    available.
    """
    network = ipaddress.IPv4Network(
        f"{head_address(network=True)}/{PREFIX_BITS}" if head.network else "127.0.0.0/8",
        strict=False,
    )
    others = {address: node for node, address in taken.items()}
    others[head_address(network=head.network)] = HEAD
    if wanted is None:
        number = 0
        while node_address(number, network=head.network) in others:
            number += 1
        return node_address(number, network=head.network)
    chosen = ipaddress.IPv4Address(wanted)
    if chosen not in network or chosen in (network.network_address, network.broadcast_address):
        raise VicinalError(
            f"the address {wanted} is not in the cluster's network",
            f"use an address of {network}, or leave it out to get the first free address",
        )
    if wanted in others:
        raise VicinalError(
            f"the address {wanted} belongs to {others[wanted]}",
            "use another address, or leave it out",
        )
    return wanted


def write_hosts(
    head_network: bool, addresses: dict[str, str], file: Path, neighbours: Neighbours | None
) -> None:
    """Write the names of all nodes into the file that each node sees as /etc/hosts."""
    head = head_address(network=head_network) if neighbours is None else neighbours.head
    others = {} if neighbours is None else neighbours.others
    # Written in place, because the nodes' mounts keep the old file if another file replaces it.
    file.write_text(host_names(head, {**addresses, **others}))


def _cable(address: str) -> str:
    """Return the name of a node's interface at the bridge; names have at most 15 characters."""
    return f"v{int(ipaddress.IPv4Address(address)):x}"
