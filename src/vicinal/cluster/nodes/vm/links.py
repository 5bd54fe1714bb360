"""Cards of virtual machines in networks of the host's, which are there, and stay as they are."""

import hashlib
import os
import platform
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Node
from vicinal.cluster.file.network import BridgeNetwork, TapNetwork
from vicinal.cluster.nodes.host_network import check_bridge, check_tap
from vicinal.cluster.nodes.vm.network import Link

HELPERS = (Path("/usr/lib/qemu/qemu-bridge-helper"), Path("/usr/libexec/qemu-bridge-helper"))
"""Where QEMU's helper is, which plugs an ordinary user's machines into bridges."""
ALLOWED = Path("/etc/qemu/bridge.conf")
"""Which bridges it may."""
_MACHINE = Path("/etc/machine-id")


def link_of(owner: str, node: Node) -> Link | None:
    """The card that a node's network asks for; None where that is something else."""
    network = node.network
    if not isinstance(network, BridgeNetwork | TapNetwork):
        return None
    address = None if network.address is None else str(network.address)
    mac = network.mac or local_mac(owner, node.name)
    if isinstance(network, TapNetwork):
        return Link(mac, tap=network.tap, address=address)
    return Link(mac, bridge=network.bridge, address=address)


def local_mac(owner: str, node: str) -> str:
    """A hardware address of a node's: locally administered, and the same at each `up`.

    Others at the same bridge, be it on other hosts, hardly have it.
    """
    host = [platform.node()]
    with suppress(OSError):
        host.append(_MACHINE.read_text().strip())
    digits = hashlib.sha256("/".join([*host, owner, node]).encode()).hexdigest()[:10]
    return ":".join(["02", *(digits[place : place + 2] for place in range(0, 10, 2))])


def check_link(uri: str, link: Link | None, *, starts: bool) -> None:
    """Raise VicinalError where what a machine is linked to is not there, or not for its libvirt.

    `starts` is for one that is about to.
    """
    if link is None:
        return
    if link.tap is not None:
        check_tap(link.tap, free=starts)
    if link.bridge is not None:
        check_bridge(link.bridge)
        if urlsplit(uri).path == "/session" and os.geteuid() != 0:
            _check_helper(link.bridge)


def _check_helper(bridge: str) -> None:
    """Raise VicinalError unless QEMU's helper plugs an ordinary user's machines into a bridge."""
    helper = next((each for each in HELPERS if each.exists()), None)
    if helper is None:
        raise VicinalError(
            "an ordinary user's machines come to a bridge by qemu-bridge-helper, which was not "
            "found",
            "install qemu-system-common, or name a tap of this user's",
        )
    if not helper.stat().st_mode & stat.S_ISUID and not _has_capabilities(helper):
        raise VicinalError(
            f"{helper} may not plug anything into {bridge}: it has no rights of its own",
            f"as root, chmod u+s {helper}, or name a tap of this user's",
        )
    try:
        lines = ALLOWED.read_text().splitlines()
    except PermissionError:
        return  # it is the helper's alone to read
    except OSError:
        lines = []
    rules = [line.split() for line in lines]
    known = any(rule[:1] == ["include"] or rule[:2] == ["allow", "all"] for rule in rules)
    if not known and ["allow", bridge] not in [rule[:2] for rule in rules]:
        raise VicinalError(
            f"qemu-bridge-helper is not allowed to plug anything into {bridge}",
            f"as root, write `allow {bridge}` into {ALLOWED}, or name a tap of this user's",
        )


def _has_capabilities(helper: Path) -> bool:
    try:
        return bool(os.getxattr(helper, "security.capability"))
    except OSError:
        return False
