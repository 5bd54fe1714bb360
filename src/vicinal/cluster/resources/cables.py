"""Cables from bridges of the host's to nodes that are containers; the bridges are somebody else's.

A cable is a pair of interfaces (veth): one is at the bridge, its end in the node is called lan0.
Either goes with the other, so that none outlasts its node's network.
"""

import hashlib
import os
from collections.abc import Mapping
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, ClassVar, Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Node
from vicinal.cluster.file.network import BridgeNetwork
from vicinal.cluster.nodes.container.passthrough import interfaces_in
from vicinal.cluster.nodes.container.state import default_base, read_json, write_json
from vicinal.cluster.nodes.host_network import check_bridge, find_interface, ip
from vicinal.cluster.nodes.vm.links import local_mac
from vicinal.cluster.plan.resource import Condition, Json, Observation
from vicinal.cluster.resources.in_container import InContainer
from vicinal.cluster.vm.image.layout import LINK_NAME


class CableResource(InContainer):
    """The cable of one node."""

    KIND: ClassVar[str] = "cable"

    def __init__(
        self,
        cluster: str,
        node: str,
        *,
        bridge: str,
        mac: str,
        address: IPv4Interface | None,
        base: Path,
    ) -> None:
        super().__init__(cluster, node, base)
        self._bridge = bridge
        self._mac = mac
        self._address = address
        self._mark = f"vicinal {os.geteuid()}-{cluster} {node}"
        # A network interface has 15 letters at most.
        self._name = f"vic-{hashlib.sha256(self._mark.encode()).hexdigest()[:11]}"

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

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        """The one that was made with these settings."""
        given: Any = settings
        return cls(
            given["cluster"],
            given["node"],
            bridge=given["bridge"],
            mac=given["mac"],
            address=given["address"] and IPv4Interface(given["address"]),
            base=Path(given["base"]),
        )

    @property
    def settings(self) -> Mapping[str, Json]:
        """All that it is made by."""
        return {
            "cluster": self._cluster,
            "node": self._node,
            "bridge": self._bridge,
            "mac": self._mac,
            "address": None if self._address is None else str(self._address),
            "base": str(self._base),
        }

    def observe(self) -> Observation:
        """Both ends are where they are to be, or it was pulled while the node is stopped."""
        found = find_interface(self._name)
        if found is None:
            stopped = read_json(self._record) is not None
            return Observation(Condition.STOPPED if stopped else Condition.ABSENT)
        if not self._is_ours(found):
            return Observation(Condition.BROKEN, f"the interface {self._name} is not ours")
        if found.get("master") != self._bridge:
            return Observation(Condition.BROKEN, f"it is not at the bridge {self._bridge}")
        network = self._network()
        if network is None or LINK_NAME not in interfaces_in(network):
            return Observation(Condition.BROKEN, "it does not end in the node's network")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Make it, from the bridge to the node's network."""
        network = self._network()
        if network is None:
            raise VicinalError(
                f"{self._node} has no network of its own, into which a cable could go",
                "see `vicinal status` for why",
            )
        check_bridge(self._bridge)
        end = f"name {LINK_NAME} address {self._mac} netns {network}"
        ip(
            ["-batch", "-"],
            lines=[
                f"link add {self._name} type veth peer {end}",
                f'link set {self._name} alias "{self._mark}"',
                f"link set {self._name} addrgenmode none",
                f"link set {self._name} master {self._bridge}",
                f"link set {self._name} up",
            ],
        )
        address = [] if self._address is None else [f"address add {self._address} dev {LINK_NAME}"]
        ip(["-batch", "-"], network, lines=[*address, f"link set {LINK_NAME} up"])

    @property
    def runs(self) -> bool:
        """It is pulled while the node is stopped."""
        return True

    def start(self) -> None:
        """Make it again."""
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
