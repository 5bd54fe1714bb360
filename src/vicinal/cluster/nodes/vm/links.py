"""Network cards of virtual machines in existing networks of the host, which stay unchanged."""

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
"""Paths of QEMU's helper, which connects VMs of unprivileged users to bridges."""
ALLOWED = Path("/etc/qemu/bridge.conf")
"""The bridges to which the helper may connect VMs."""
_HOST_ID = Path("/etc/machine-id")


def link_of(owner: str, node: Node) -> Link | None:
    """The card that a node's network requests; None for networks without a bridge or tap."""
    network = node.network
    if not isinstance(network, BridgeNetwork | TapNetwork):
        return None
    address = None if network.address is None else str(network.address)
    mac = network.mac or local_mac(owner, node.name)
    if isinstance(network, TapNetwork):
        return Link(mac, tap=network.tap, address=address)
    return Link(mac, bridge=network.bridge, address=address)


def local_mac(owner: str, node: str) -> str:
    """A node's hardware address: locally administered, and the same at each `up`.

    It is a hash of this host's identity, the owner and the node, so that nodes on the same bridge,
    also on other hosts, are unlikely to share an address.
    """
    host = [platform.node()]
    with suppress(OSError):
        host.append(_HOST_ID.read_text().strip())
    digits = hashlib.sha256("/".join([*host, owner, node]).encode()).hexdigest()[:10]
    return ":".join(["02", *(digits[start : start + 2] for start in range(0, 10, 2))])


def check_link(uri: str, link: Link | None, *, starts: bool) -> None:
    """Raise VicinalError if the bridge or tap of a link is missing, or libvirt may not use it.

    `starts` says that the VM is about to start, so its tap must be free.
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
    """Raise VicinalError unless QEMU's helper connects an unprivileged user's VMs here."""
    helper = next((each for each in HELPERS if each.exists()), None)
    if helper is None:
        raise VicinalError(
            "qemu-bridge-helper, which connects an unprivileged user's VMs to a bridge, was "
            "not found",
            "install qemu-system-common, or name a tap of this user",
        )
    if not helper.stat().st_mode & stat.S_ISUID and not _has_capabilities(helper):
        raise VicinalError(
            f"{helper} may not connect VMs to {bridge}: it has no privileges",
            f"as root, run `chmod u+s {helper}`, or name a tap of this user",
        )
    try:
        lines = ALLOWED.read_text().splitlines()
    except PermissionError:
        return  # only the helper may read it
    except OSError:
        lines = []
    rules = [line.split() for line in lines]
    known = any(rule[:1] == ["include"] or rule[:2] == ["allow", "all"] for rule in rules)
    if not known and ["allow", bridge] not in [rule[:2] for rule in rules]:
        raise VicinalError(
            f"qemu-bridge-helper may not connect VMs to {bridge}: {ALLOWED} does not allow it",
            f"as root, write `allow {bridge}` into {ALLOWED}, or name a tap of this user",
        )


def _has_capabilities(helper: Path) -> bool:
    try:
        return bool(os.getxattr(helper, "security.capability"))
    except OSError:
        return False
