"""The network of a cluster of namespaces: a bridge in the head, and a veth pair to each node."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vicinal.cluster.nodes.layout import HEAD, PREFIX_BITS, head_address, node_address
from vicinal.host import namespaces as kernel

BRIDGE = "vicinal0"
INTERFACE = "eth0"
"""The only interface of a node besides its loopback interface."""


def make_bridge() -> None:
    """Give the caller a network namespace with a bridge to the nodes. Raises OSError."""
    kernel.unshare(kernel.CLONE_NEWNET)
    without_ipv6()
    _ip(
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"address add {head_address(network=True)}/{PREFIX_BITS} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    )


def connect(number: int, process: int) -> None:
    """Create a veth pair from the bridge to a process's network namespace. Raises OSError."""
    _ip(
        f"link add veth{number} type veth peer name {INTERFACE} netns {process}",
        f"link set veth{number} master {BRIDGE} up",
    )


def configure_node(number: int) -> None:
    """In the node: give the interface its address, and set it up. Raises OSError."""
    without_ipv6()
    _ip(
        "link set lo up",
        f"address add {node_address(number, network=True)}/{PREFIX_BITS} dev {INTERFACE}",
        f"link set {INTERFACE} up",
    )


def try_network() -> str:
    """Try make_bridge() and a veth pair in a child process, whose end removes both.

    Returns the error, or an empty string.
    """
    if not find_tool("ip"):
        return "`ip` of iproute2 is not installed"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        trouble = ""
        try:
            make_bridge()
            _ip("link add veth0 type veth peer name veth1")
        except OSError as error:
            trouble = error.strerror or str(error)
        os.write(writer, trouble.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        trouble = answer.read().decode()
    os.waitpid(child, 0)
    return trouble


def host_names(
    head: str, nodes: Mapping[str, str], first: Sequence[str] = ("127.0.0.1 localhost",)
) -> str:
    """Return the text of /etc/hosts in the cluster: `first`, the head, then the nodes.

    `head` is an address, and `nodes` has addresses by name.
    """
    lines = [*first, f"{head} {HEAD}", *(f"{address} {name}" for name, address in nodes.items())]
    return "\n".join(lines) + "\n"


def find_tool(name: str) -> str | None:
    """Return the path of a system tool; None if it is not installed.

    /usr/sbin and /sbin are searched too, which are not in the PATH of ordinary users.
    """
    return shutil.which(name, path=f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin")


def without_ipv6() -> None:
    """Disable IPv6 for all present and future interfaces in the caller's network namespace."""
    # An IPv6 link-local address would be tentative for the first seconds, and an MPI library may
    # choose it.
    for scope in ("all", "default"):
        switch = Path("/proc/sys/net/ipv6/conf", scope, "disable_ipv6")
        if switch.is_file():
            switch.write_text("1")


def _ip(*commands: str) -> None:
    """Run commands of `ip`, up to the first that fails. Raises OSError if a command fails."""
    tool = find_tool("ip")
    if tool is None:
        raise FileNotFoundError(2, "not installed", "ip")
    done = subprocess.run(
        [tool, "-batch", "-"],
        input="\n".join(commands).encode() + b"\n",
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace").strip().splitlines() or ["failed"]
        raise OSError(0, complaint[0], "ip")
