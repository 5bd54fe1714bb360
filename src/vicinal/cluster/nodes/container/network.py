"""The network of a node: a namespace of its own, and a cable to the bridge in the head."""

import ipaddress
import json
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.layout import HEAD, PREFIX_BITS, head_address, node_address
from vicinal.cluster.nodes.network import BRIDGE, INTERFACE, find_tool, host_names

_DIRECTORY = "/run/netns"

# Few processes, as this is half of the time that a node takes. In the node's network a link-local
# address would be tentative for the first seconds, and an MPI may pick it.
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

# The name must still lead to the node.
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
    """Put an interface that is in the head's network at the bridge, which gets this address.

    Returns its MTU; raises VicinalError.
    """
    said = head.run(["sh", "-c", _PLUG_IN, "plug", interface, address])
    return int(json.loads(said)[0]["mtu"])


def connect(
    head: Head, node: str, address: str, *, joined: bool = True, mtu: int | None = None
) -> None:
    """Make the network of a node, in which it is alone unless it is joined with the others.

    `mtu` is what its packets may have at most, by default as in Ethernet. Raises VicinalError where
    it cannot be had.
    """
    if not head.network and not joined:
        raise VicinalError(
            f"{node} is to have no network, and nodes have that of the host here",
            "see `vicinal status` for why, or leave out its network",
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
    """Let an interface that was put into a node's network have this name and address, and be up."""
    line = "" if address is None else f"address add {address} dev {name}"
    head.run(["sh", "-c", _ADOPT, "adopt", node, given, name, line])


def disconnect(head: Head, node: str, address: str) -> None:
    """Take it away, as far as it was made; nothing in it is the node's to keep."""
    if head.network:
        head.run(["sh", "-c", _DISCONNECT, "disconnect", node, _cable(address)])


def namespace(head: Head, node: str) -> str | None:
    """The file that stands for a node's network in the head; None where it shares the host's."""
    return f"{_DIRECTORY}/{node}" if head.network else None


def choose_address(head: Head, wanted: str | None, taken: dict[str, str]) -> str:
    """The address that is asked for, or the first that is free; `taken` are those of nodes.

    Raises VicinalError where it cannot be had.
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
            f"take one of {network}, or none for the first that is free",
        )
    if wanted in others:
        raise VicinalError(f"the address {wanted} is {others[wanted]}'s", "take another, or none")
    return wanted


def write_hosts(
    head_network: bool, addresses: dict[str, str], file: Path, neighbours: Neighbours | None
) -> None:
    """Write the names of all nodes where each of them reads it as /etc/hosts."""
    head = head_address(network=head_network) if neighbours is None else neighbours.head
    others = {} if neighbours is None else neighbours.others
    # In place, as what is mounted is this file and not its name.
    file.write_text(host_names(head, {**addresses, **others}))


def _cable(address: str) -> str:
    """The name of a node's cable at the bridge, where 15 characters are the most."""
    return f"v{int(ipaddress.IPv4Address(address)):x}"
