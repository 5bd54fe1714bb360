"""What connects container nodes to networks of the host's: interfaces and cables.

An interface is that of a virtual function, or of a whole card. The name that it had here is kept
beside the cluster's journal before it goes, so that it comes back under that, be it from a node
that was killed.

A cable is a pair of interfaces (veth): one end is at a bridge of the host's, which somebody else
made, and the end in the node is called lan0. The kernel removes both ends together, so that none
outlasts its node's network.
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
from vicinal.cluster.file.network import BridgeNetwork, DeviceNetwork, FunctionNetwork
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
from vicinal.cluster.resources.functions import FunctionResource
from vicinal.cluster.resources.in_container import InContainer
from vicinal.cluster.resources.whole_device import check_whole_device, held_device
from vicinal.cluster.vm.image.layout import LINK_NAME
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_address, check_device, owner_of

_ETHERNET_NAME, _INFINIBAND_NAME = "eth1", "ib0"
"""What an interface is called in its node, whose eth0 is at the cluster's bridge."""

_INFINIBAND_TYPE = "32"
_APPEAR_SECONDS = 15.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class InterfaceResource(InContainer):
    """The interface of one node, and its RDMA devices."""

    KIND: ClassVar[str] = "interface"

    cluster: str
    node: str
    device: str | None
    """PCI address; None: that of the node's function."""
    address: IPv4Interface | None
    base: Path
    functions: Functions = field(default_factory=Functions, metadata=UNRECORDED)

    @classmethod
    def of(cls, cluster: str, node: Node) -> Self | None:
        """What a container node is to have; None where that is nothing of the host's.

        Raises VicinalError for users who could not move it.
        """
        network = node.network
        if not isinstance(network, FunctionNetwork | DeviceNetwork):
            return None
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can move a network interface into the container {node.name}",
                "run it as root, or leave out the node's network",
            )
        device = network.device if isinstance(network, DeviceNetwork) else None
        return cls(cluster, node.name, device, network.address, default_base())

    @property
    def needs(self) -> tuple[str, ...]:
        """Its node, and the function."""
        function = () if self.device else (f"{FunctionResource.KIND}/{self.node}",)
        return (*function, *super().needs)

    def observe(self) -> Observation:
        """It is in the node's network, or was taken from it while the node is stopped."""
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
        """The device, if it is a whole one."""
        return held_device(self.device)

    def check(self, released: Held) -> None:
        """Whether a whole device is there, and nobody else uses it."""
        check_whole_device(self.functions, self.device, released)

    def create(self) -> None:
        """Move it in, and show the device files of its RDMA device."""
        network = self._network()
        if network is None:
            raise VicinalError(
                f"{self.node} has no network of its own, into which an interface could go",
                "see `vicinal status` for why",
            )
        if self.device is not None:
            check_device(self.functions, self.device)
        owner = owner_of(self.cluster, self.node)
        address = self.device or assigned_address(self.functions, owner)
        devices = _rdma_devices(self.functions, address)
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
        """It is the host's again while the node is stopped."""
        return True

    def start(self) -> None:
        self.create()

    def stop(self) -> None:
        """Move it back, and remember that it was there."""
        self._take_back()
        kept = read_json(self._record)
        if kept is not None:
            write_json(self._record, kept | {"stopped": True})

    def remove(self) -> None:
        """Move it back, from wherever it is."""
        self._take_back()
        self._record.unlink(missing_ok=True)

    def _take_back(self) -> None:
        kept = read_json(self._record)
        if kept is None or not kept["interface"]:
            return
        network = self._network()
        if network is not None and kept["name"] in interfaces_in(network):
            move_back(network, kept["name"], kept["interface"])
        if not self.functions.host.device(kept["address"]).is_dir():
            return  # the device itself is gone
        # The kernel takes its time where the node's network has just ended.
        here = self._wait_here(kept["address"], needed=True)
        if here != kept["interface"]:
            rename(here, kept["interface"])

    def _wait_here(self, address: str, *, needed: bool) -> str:
        """The device's interface in this network; "" where it has none and needs none."""
        deadline = time.monotonic() + (_APPEAR_SECONDS if needed else 0)
        while not (names := self.functions.host.names(address, "net")):
            if time.monotonic() > deadline:
                if not needed:
                    return ""
                raise VicinalError(
                    f"{address} has no network interface here after {_APPEAR_SECONDS:.0f} s",
                    "see that its driver is loaded, and what `dmesg` says of it",
                )
            time.sleep(_POLL_SECONDS)
        return names[0]

    def _name_inside(self, interface: str) -> str:
        if not interface:
            return ""
        kind = self.functions.host.sysfs / "class/net" / interface / "type"
        infiniband = self.functions.host.read(kind) == _INFINIBAND_TYPE
        return _INFINIBAND_NAME if infiniband else _ETHERNET_NAME

    def _process(self) -> int | None:
        return self._open().process_of(self.node)


def _rdma_devices(functions: Functions, address: str) -> list[Path]:
    """Files by which programs use the RDMA devices of a PCI device."""
    names = [
        name
        for kind in ("infiniband_verbs", "infiniband_mad")
        for name in functions.host.names(address, kind)
    ]
    files = [Path("/dev/infiniband", name) for name in (*names, "rdma_cm")] if names else []
    return [each for each in files if each.exists()]


@dataclass(frozen=True)
class CableResource(InContainer):
    """The cable of one node."""

    KIND: ClassVar[str] = "cable"

    cluster: str
    node: str
    bridge: str
    mac: str
    address: IPv4Interface | None
    base: Path

    @classmethod
    def of(cls, cluster: str, node: Node) -> Self | None:
        """What a container node is to have; None where that is no cable.

        Raises VicinalError for bridges that are not there, and users who may not plug it in.
        """
        network = node.network
        if not isinstance(network, BridgeNetwork):
            return None
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can plug the container {node.name} into the bridge {network.bridge}",
                "run it as root, or leave out the node's network",
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
        """Both ends are where they are to be, or it was pulled while the node is stopped."""
        found = find_interface(self._name)
        if found is None:
            stopped = read_json(self._record) is not None
            return Observation(Condition.STOPPED if stopped else Condition.ABSENT)
        if not self._is_ours(found):
            return Observation(Condition.BROKEN, f"the interface {self._name} is not ours")
        if found.get("master") != self.bridge:
            return Observation(Condition.BROKEN, f"it is not at the bridge {self.bridge}")
        network = self._network()
        if network is None or LINK_NAME not in interfaces_in(network):
            return Observation(Condition.BROKEN, "it does not end in the node's network")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Make it, from the bridge to the node's network."""
        network = self._network()
        if network is None:
            raise VicinalError(
                f"{self.node} has no network of its own, into which a cable could go",
                "see `vicinal status` for why",
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
        """It is pulled while the node is stopped."""
        return True

    def start(self) -> None:
        self.create()
        self._record.unlink(missing_ok=True)

    def stop(self) -> None:
        """Pull it, and remember that it was there."""
        write_json(self._record, {"stopped": True})
        self._pull()

    def remove(self) -> None:
        """Pull it, if it is ours."""
        self._pull()
        self._record.unlink(missing_ok=True)

    def _pull(self) -> None:
        found = find_interface(self._name)
        if found is not None and self._is_ours(found):
            ip(["link", "delete", "dev", self._name])

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        kind = found.get("linkinfo", {}).get("info_kind")
        # One that a killed command made has no mark yet; the name is nobody else's.
        return kind == "veth" and found.get("ifalias", "") in (self._mark, "")

    @property
    def _mark(self) -> str:
        return f"vicinal {os.geteuid()}-{self.cluster} {self.node}"

    @property
    def _name(self) -> str:
        # A network interface has 15 letters at most.
        return f"vic-{hashlib.sha256(self._mark.encode()).hexdigest()[:11]}"
