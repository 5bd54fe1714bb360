"""Connections of container nodes to networks of the host: interfaces and cables.

An interface belongs to a virtual function or a whole card, and moves into the node. Its name on the
host is stored beside the cluster's journal before the move. So the interface gets this name back
when it returns, even from a node that was killed.

A cable is a pair of veth interfaces. One end is at a bridge of the host, which Vicinal does not
create. The end in the node is called lan0. The kernel removes both ends together, so that neither
outlives the node's network.
"""

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, ClassVar, Self

from vicinal.base.codec import UNRECORDED
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Node
from vicinal.cluster.file.network import BridgeNetwork, DeviceNetwork, VfNetwork
from vicinal.cluster.nodes.container.passthrough import (
    interfaces_in,
    move_back,
    move_in,
    rename,
    show_devices,
)
from vicinal.cluster.nodes.container.state import default_base, read_json, write_json
from vicinal.cluster.nodes.host_network import check_bridge, find_interface, ip
from vicinal.cluster.nodes.vm.links import local_mac
from vicinal.cluster.plan.resource import Condition, Held, Observation
from vicinal.cluster.resources.in_container import InContainer
from vicinal.cluster.resources.vfs import VfResource
from vicinal.cluster.resources.whole_device import check_whole_device, held_device
from vicinal.cluster.vm.image.layout import LINK_NAME
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import assigned_address, check_device, owner_of

_ETHERNET_NAME, _INFINIBAND_NAME = "eth1", "ib0"
"""Name of an interface in its node, whose eth0 is at the cluster's bridge."""

_INFINIBAND_TYPE = "32"
_APPEAR_SECONDS = 15.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class InterfaceResource(InContainer):
    """The interface of a node, and its RDMA devices."""

    KIND: ClassVar[str] = "interface"

    cluster: str
    node: str
    device: str | None
    """PCI address; None: the node's virtual function."""
    address: IPv4Interface | None
    base: Path
    vfs: Vfs = field(default_factory=Vfs, metadata=UNRECORDED)

    @classmethod
    def of(cls, cluster: str, node: Node) -> Self | None:
        """Return the interface of a container node; None if its network has none of the host.

        Raises VicinalError if the user is not root, and so cannot move interfaces.
        """
        network = node.network
        if not isinstance(network, VfNetwork | DeviceNetwork):
            return None
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can move a network interface into the container {node.name}",
                "run the command as root, or remove the node's network",
            )
        device = network.device if isinstance(network, DeviceNetwork) else None
        return cls(cluster, node.name, device, network.address, default_base())

    @property
    def needs(self) -> tuple[str, ...]:
        """The node, and the node's VF if it has one."""
        vf = () if self.device else (f"{VfResource.KIND}/{self.node}",)
        return (*vf, *super().needs)

    def observe(self) -> Observation:
        """Check that the interface is in the node's network, or was moved out by stop()."""
        kept = read_json(self._record)
        if kept is None:
            return Observation(Condition.ABSENT)
        if kept["stopped"]:
            return Observation(Condition.STOPPED)
        network = self._network()
        if network is None or (kept["name"] and kept["name"] not in interfaces_in(network)):
            return Observation(Condition.BROKEN, "it is not in the node's network")
        process = self._process()
        if process is not None and any(
            not Path(f"/proc/{process}/root{each}").exists() for each in kept["devices"]
        ):
            return Observation(Condition.BROKEN, "its device files are not in the node")
        return Observation(Condition.READY)

    @property
    def held(self) -> Held:
        """The device, if it is a whole device."""
        return held_device(self.device)

    def check(self, released: Held) -> None:
        """Check that a whole device exists and is unused."""
        check_whole_device(self.vfs, self.device, released)

    def create(self) -> None:
        """Move the interface into the node, and show the node its RDMA device files."""
        network = self._network()
        if network is None:
            raise VicinalError(
                f"{self.node} has no network of its own, to which the interface could move",
                "check the reason with `vicinal status`",
            )
        if self.device is not None:
            check_device(self.vfs, self.device)
        owner = owner_of(self.cluster, self.node)
        address = self.device or assigned_address(self.vfs, owner)
        devices = _rdma_devices(self.vfs, address)
        interface = self._wait_here(address, needed=not devices)
        name = self._name_inside(interface)
        kept = {"address": address, "interface": interface, "name": name, "stopped": False}
        write_json(self._record, {**kept, "devices": list(map(str, devices))})
        if interface:
            move_in(interface, network, name, self.address)
        process = self._process()
        if devices and process is not None:
            show_devices(process, devices)

    @property
    def runs(self) -> bool:
        """True: the interface returns to the host while the node is stopped."""
        return True

    def start(self) -> None:
        self.create()

    def stop(self) -> None:
        """Move the interface back to the host, and record that the node is stopped."""
        self._move_to_host()
        kept = read_json(self._record)
        if kept is not None:
            write_json(self._record, kept | {"stopped": True})

    def remove(self) -> None:
        """Move the interface back to the host."""
        self._move_to_host()
        self._record.unlink(missing_ok=True)

    def _move_to_host(self) -> None:
        kept = read_json(self._record)
        if kept is None or not kept["interface"]:
            return
        network = self._network()
        if network is not None and kept["name"] in interfaces_in(network):
            move_back(network, kept["name"], kept["interface"])
        if not self.vfs.host.device(kept["address"]).is_dir():
            return  # the device itself is gone
        # If the node's network has just ended, the kernel returns the interface after a delay.
        here = self._wait_here(kept["address"], needed=True)
        if here != kept["interface"]:
            rename(here, kept["interface"])

    def _wait_here(self, address: str, *, needed: bool) -> str:
        """Return the device's interface in this network.

        If `needed`, wait up to 15 s, and raise VicinalError without an interface; otherwise return
        "" without one.
        """
        deadline = time.monotonic() + (_APPEAR_SECONDS if needed else 0)
        while not (names := self.vfs.host.names(address, "net")):
            if time.monotonic() > deadline:
                if not needed:
                    return ""
                raise VicinalError(
                    f"{address} has no network interface here after {_APPEAR_SECONDS:.0f} s",
                    "check that its driver is loaded, and what `dmesg` says about the device",
                )
            time.sleep(_POLL_SECONDS)
        return names[0]

    def _name_inside(self, interface: str) -> str:
        if not interface:
            return ""
        kind = self.vfs.host.sysfs / "class/net" / interface / "type"
        infiniband = self.vfs.host.read(kind) == _INFINIBAND_TYPE
        return _INFINIBAND_NAME if infiniband else _ETHERNET_NAME

    def _process(self) -> int | None:
        return self._open().process_of(self.node)


def _rdma_devices(vfs: Vfs, address: str) -> list[Path]:
    """Return the device files of a PCI device's RDMA devices."""
    names = [
        name
        for kind in ("infiniband_verbs", "infiniband_mad")
        for name in vfs.host.names(address, kind)
    ]
    files = [Path("/dev/infiniband", name) for name in (*names, "rdma_cm")] if names else []
    return [each for each in files if each.exists()]


@dataclass(frozen=True)
class CableResource(InContainer):
    """The cable of a node."""

    KIND: ClassVar[str] = "cable"

    cluster: str
    node: str
    bridge: str
    mac: str
    address: IPv4Interface | None
    base: Path

    @classmethod
    def of(cls, cluster: str, node: Node) -> Self | None:
        """Return the cable of a container node; None if its network is not a bridge.

        Raises VicinalError if the bridge does not exist or the user is not root.
        """
        network = node.network
        if not isinstance(network, BridgeNetwork):
            return None
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can connect the container {node.name} to the bridge {network.bridge}",
                "run the command as root, or remove the node's network",
            )
        check_bridge(network.bridge)
        return cls(
            cluster,
            node.name,
            bridge=network.bridge,
            mac=network.mac or local_mac(f"{os.geteuid()}-{cluster}", node.name),
            address=network.address,
            base=default_base(),
        )

    def observe(self) -> Observation:
        """Check both ends of the cable; stopped if stop() has removed it."""
        found = find_interface(self._name)
        if found is None:
            stopped = read_json(self._record) is not None
            return Observation(Condition.STOPPED if stopped else Condition.ABSENT)
        if not self._is_ours(found):
            return Observation(Condition.BROKEN, f"{self._name} is not the cluster's interface")
        if found.get("master") != self.bridge:
            return Observation(Condition.BROKEN, f"it is not at the bridge {self.bridge}")
        network = self._network()
        if network is None or LINK_NAME not in interfaces_in(network):
            return Observation(Condition.BROKEN, "it does not end in the node's network")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Create the cable from the bridge to the node's network."""
        network = self._network()
        if network is None:
            raise VicinalError(
                f"{self.node} has no network of its own, in which the cable could end",
                "check the reason with `vicinal status`",
            )
        check_bridge(self.bridge)
        end = f"name {LINK_NAME} address {self.mac} netns {network}"
        ip(
            ["-batch", "-"],
            lines=[
                f"link add {self._name} type veth peer {end}",
                f'link set {self._name} alias "{self._mark}"',
                f"link set {self._name} addrgenmode none",
                f"link set {self._name} master {self.bridge}",
                f"link set {self._name} up",
            ],
        )
        address = [] if self.address is None else [f"address add {self.address} dev {LINK_NAME}"]
        ip(["-batch", "-"], network, lines=[*address, f"link set {LINK_NAME} up"])

    @property
    def runs(self) -> bool:
        """True: the cable is removed while the node is stopped."""
        return True

    def start(self) -> None:
        self.create()
        self._record.unlink(missing_ok=True)

    def stop(self) -> None:
        """Remove the cable, and record that the node is stopped."""
        write_json(self._record, {"stopped": True})
        self._pull()

    def remove(self) -> None:
        """Remove the cable, if it is the cluster's."""
        self._pull()
        self._record.unlink(missing_ok=True)

    def _pull(self) -> None:
        found = find_interface(self._name)
        if found is not None and self._is_ours(found):
            ip(["link", "delete", "dev", self._name])

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        kind = found.get("linkinfo", {}).get("info_kind")
        # A cable of a killed command may lack the mark; no other program uses the name.
        return kind == "veth" and found.get("ifalias", "") in (self._mark, "")

    @property
    def _mark(self) -> str:
        return f"vicinal {os.geteuid()}-{self.cluster} {self.node}"

    @property
    def _name(self) -> str:
        # The name of a network interface has at most 15 characters.
        return f"vic-{hashlib.sha256(self._mark.encode()).hexdigest()[:11]}"
