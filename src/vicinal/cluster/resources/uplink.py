"""The uplink of a host's containers to containers of other hosts: a cable to a bridge of the host.

The administrator has connected the bridges of all hosts to one Ethernet. So all containers of the
cluster are in one network, with the heads, from which launchers reach the containers.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar, Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.state import default_base
from vicinal.cluster.nodes.host_network import check_bridge, find_interface, ip
from vicinal.cluster.nodes.layout import PREFIX_BITS, head_address
from vicinal.cluster.nodes.network import BRIDGE
from vicinal.cluster.plan.resource import Condition, Observation, Standing

_END = "uplink"


@dataclass(frozen=True)
class UplinkResource(Standing):
    """The uplink of one host."""

    KIND: ClassVar[str] = "uplink"

    cluster: str
    bridge: str
    address: str
    base: Path

    @classmethod
    def of(cls, cluster: str, bridge: str, address: str) -> Self:
        """Return the uplink to a bridge, with the address that the head gets.

        Raises VicinalError if the bridge does not exist or the user is not root.
        """
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can connect the containers of {cluster} to the bridge {bridge}",
                "run the command as root on all hosts, or give the nodes the backend vm",
            )
        check_bridge(bridge)
        return cls(cluster, bridge, address, default_base())

    @property
    def needs(self) -> tuple[str, ...]:
        """The head, in whose network the uplink ends."""
        return ("containers/main",)

    def observe(self) -> Observation:
        """Check the end at the bridge; the other end disappears with the head."""
        found = find_interface(self._name)
        if found is None:
            return Observation(Condition.ABSENT)
        if not self._is_ours(found):
            return Observation(Condition.BROKEN, f"{self._name} is not the cluster's interface")
        if found.get("master") != self.bridge:
            return Observation(Condition.BROKEN, f"it is not at the bridge {self.bridge}")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Create the cable, and set the head's address, which is unique on all hosts."""
        network = ContainerCluster.open(self.cluster, self.base).head_network
        if network is None:
            raise VicinalError(
                "containers have no network of their own on this host, so that containers of other "
                "hosts cannot reach them",
                "check the reason with `vicinal status`",
            )
        check_bridge(self.bridge)
        ip(
            ["-batch", "-"],
            lines=[
                f"link add {self._name} type veth peer name {_END} netns {network}",
                f'link set {self._name} alias "{self._mark}"',
                f"link set {self._name} addrgenmode none",
                f"link set {self._name} master {self.bridge}",
                f"link set {self._name} up",
            ],
        )
        ip(
            ["-batch", "-"],
            network,
            lines=[
                f"address flush dev {BRIDGE}",
                f"address add {self.address}/{PREFIX_BITS} dev {BRIDGE}",
                f"link set {_END} master {BRIDGE}",
                f"link set {_END} up",
            ],
        )

    def remove(self) -> None:
        """Remove the cable if it is the cluster's; then the head reaches only this host's nodes."""
        found = find_interface(self._name)
        if found is not None and self._is_ours(found):
            ip(["link", "delete", "dev", self._name])

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        kind = found.get("linkinfo", {}).get("info_kind")
        # A cable of a killed command may lack the mark; no other program uses the name.
        return kind == "veth" and found.get("ifalias", "") in (self._mark, "")

    @property
    def _mark(self) -> str:
        return f"vicinal {os.geteuid()}-{self.cluster} {_END}"

    @property
    def _name(self) -> str:
        # The name of a network interface has at most 15 characters.
        return f"vic-{hashlib.sha256(self._mark.encode()).hexdigest()[:11]}"


def head_of(number: int) -> str:
    """Return the address of a head.

    `number` is the index of its host among the hosts with containers.
    """
    return str(IPv4Address(head_address(network=True)) - number)
