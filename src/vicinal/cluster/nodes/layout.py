"""Paths and addresses that commands, the head and the nodes of a cluster share.

The head of a cluster of namespaces has a tmpfs of its own on /run. All nodes share /run/vicinal,
with the regions of jobs; /run/node is private to each node.
"""

EXCHANGE = "/run/vicinal"
"""Directory that all nodes of a cluster share; it contains regions, and no other channel."""

NODE_DIRECTORY = "/run/node"
"""Private directory of each node, for the session files of launchers."""

ENTRIES = f"{EXCHANGE}/nodes"
"""Directory with a file for each node of an ephemeral cluster that runs: options for nsenter."""

REMOTE_SHELL = f"{EXCHANGE}/remote-shell"
"""Executable that launchers use instead of ssh: REMOTE_SHELL HOST COMMAND..."""

RANK = f"{EXCHANGE}/rank"
"""Executable that prepares a rank: RANK INPUT CPUS COMMAND...

INPUT is a file that rank 0 reads as standard input, while other ranks read /dev/null, or "-". CPUS
are numbers of processors, to one of which the rank is pinned, or "-".
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
# If there are more ranks than processors, ranks go on with the first processor.
count=0
for cpu in $cpus; do count=$((count + 1)); done
index=$((rank % count))
for cpu in $cpus; do
    [ "$index" -gt 0 ] || break
    index=$((index - 1))
done
exec taskset -c "$cpu" "$@"
"""
"""Content of the executable RANK."""

HEAD = "head"
"""Host name of the head, in which launchers run; the head is not a node."""

MOST_NODES = 1024
"""Maximum number of nodes, because a bridge has at most 1024 ports."""

PREFIX_BITS = 16
"""Length of the network part of the addresses."""

_OWN_NETWORK = "10.0"
_LOOPBACK = "127.1"


def node_name(number: int) -> str:
    """Return the host name of node `number`, counted from 0."""
    return f"node{number}"


def node_address(number: int, *, network: bool) -> str:
    """Return the IPv4 address of node `number`, counted from 0.

    If the nodes share the host's network, the address is in 127.1.0.0/16, on the host's loopback,
    because a launcher starts nothing remotely at an address of its own host.
    """
    return f"{_OWN_NETWORK if network else _LOOPBACK}.{(number + 1) >> 8}.{(number + 1) & 255}"


def head_address(*, network: bool) -> str:
    """Return the IPv4 address of the head: on the bridge with `network`, otherwise 127.0.0.1."""
    return f"{_OWN_NETWORK}.255.254" if network else "127.0.0.1"
