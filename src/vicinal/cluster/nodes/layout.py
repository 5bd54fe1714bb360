"""What the manager, the keeper and the nodes of a native cluster agree on.

Inside the cluster a tmpfs of its own lies on /run. /run/vicinal in it is common to all
nodes and is where the regions of jobs are; /run/node is private to each node.
"""

from dataclasses import asdict, dataclass

EXCHANGE = "/run/vicinal"
"""Directory that all nodes of a cluster share; it holds regions, and no other channel."""

NODE_DIRECTORY = "/run/node"
"""Directory of each node's own, for the session files of launchers."""

REMOTE_SHELL = f"{EXCHANGE}/remote-shell"
"""Executable that launchers use in place of ssh: REMOTE_SHELL HOST COMMAND..."""

RANK = f"{EXCHANGE}/rank"
"""Executable that prepares a rank: RANK INPUT CPUS COMMAND...

INPUT is a file for rank 0 to read while the others get none, or "-"; CPUS are numbers of
processors, of which the rank is pinned to one, or "-".
"""

RANK_TEXT = """\
#!/bin/sh
# Prepares a rank: RANK INPUT CPUS COMMAND...
input=$1
cpus=$2
shift 2
rank=${PMI_RANK:-${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-0}}}
if [ "$input" != - ]; then
    [ "$rank" -eq 0 ] || input=/dev/null
    exec <"$input"
fi
if [ "$cpus" = - ]; then
    exec "$@"
fi
# From the beginning again where there are more ranks than processors.
count=0
for cpu in $cpus; do count=$((count + 1)); done
place=$((rank % count))
for cpu in $cpus; do
    [ "$place" -gt 0 ] || break
    place=$((place - 1))
done
exec taskset -c "$cpu" "$@"
"""
"""What that executable is."""

HEAD = "head"
"""Host name of the place that launchers run in; it is not a node."""

MOST_NODES = 1024
"""More ports than this a bridge does not have."""

PREFIX_BITS = 16
"""Length of the network part of the addresses."""

_OWN_NETWORK = "10.0"
_LOOPBACK = "127.1"


def node_name(number: int) -> str:
    """Host name of node `number`, counted from 0."""
    return f"node{number}"


def node_address(number: int, *, network: bool) -> str:
    """IPv4 address of node `number`.

    Where the nodes share the host's network it is one of the host's many loopback
    addresses, since a launcher runs nothing remotely at an address that it has itself.
    """
    return f"{_OWN_NETWORK if network else _LOOPBACK}.{(number + 1) >> 8}.{(number + 1) & 255}"


def head_address(*, network: bool) -> str:
    """IPv4 address of the head, on the bridge where there is one."""
    return f"{_OWN_NETWORK}.255.254" if network else "127.0.0.1"


@dataclass(frozen=True)
class Request:
    """What the manager asks of the keeper."""

    nodes: int
    network: bool
    """Whether to give each node a network of its own, where the kernel lets us."""
    regions: list[tuple[str, str]]
    """Files of the host to show in the exchange: (path, name there)."""

    to_dict = asdict


@dataclass(frozen=True)
class Started:
    """What the keeper answers once all nodes are up."""

    user_namespace: bool
    """Whether it took a user namespace, in which the user is root."""
    network: bool
    """Whether the nodes have networks of their own."""
    limitations: list[str]
    """What the cluster had to do without, each a phrase for people."""
    pid_namespaces: list[str]
    """Of each node, as /proc/PID/ns/pid shows it."""

    to_dict = asdict
