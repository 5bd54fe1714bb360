"""Devices of the host in a running node: interfaces are moved, and device files are shown.

Only root may move an interface out of the host's network. When the node's network ends, with the
head or by itself, the kernel moves the interfaces back.
"""

import json
import os
from collections.abc import Sequence
from ipaddress import IPv4Interface
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import ip
from vicinal.cluster.nodes.network import find_tool
from vicinal.host import namespaces as kernel


def interfaces_in(network: Path) -> list[str]:
    """Return the names of the interfaces in a network namespace, given by its file.

    The list is empty if the namespace ends at this moment. Raises VicinalError if `ip` or `nsenter`
    is missing.
    """
    try:
        return [each["ifname"] for each in json.loads(ip(["-j", "link", "show"], network))]
    except VicinalError:
        if find_tool("ip") is None or find_tool("nsenter") is None:
            raise
        return []


def move_in(interface: str, network: Path, name: str, address: IPv4Interface | None) -> None:
    """Move an interface into a network namespace under the name `name`, and set it up there.

    Raises VicinalError.
    """
    ip(["link", "set", "dev", interface, "netns", str(network), "name", name])
    if address is not None:
        ip(["address", "replace", str(address), "dev", name], network)
    ip(["link", "set", "dev", name, "up"], network)


def move_back(network: Path, name: str, interface: str) -> None:
    """Set an interface down, and move it into this process's network under the name `interface`.

    Raises VicinalError.
    """
    own = f"/proc/{os.getpid()}/ns/net"
    ip(["link", "set", "dev", name, "down"], network)
    ip(["link", "set", "dev", name, "netns", own, "name", interface], network)


def rename(interface: str, name: str) -> None:
    """Rename an interface of this process's network, which is then down. Raises VicinalError."""
    ip(["link", "set", "dev", interface, "down"])
    ip(["link", "set", "dev", interface, "name", name])


def show_devices(process: int, devices: Sequence[Path]) -> None:
    """Show device files of the host in a node, under their paths on the host.

    `process` is the PID of a process in the node. Raises VicinalError if a device cannot be shown.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            copies = {each: kernel.copy_mounts(str(each)) for each in devices}
            kernel.enter_mounts(process)
            for each, copy in copies.items():
                each.parent.mkdir(parents=True, exist_ok=True)
                each.touch()
                kernel.attach_mounts(copy, str(each))
            status = 0
        except OSError as error:
            os.write(2, f"vicinal: {error}\n".encode())
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        names = ", ".join(map(str, devices))
        raise VicinalError(f"{names} could not be passed to the node", "see the messages above")
