"""The way from a host's containers to those of the other hosts: a cable to a bridge of the host's.

The bridges of all hosts are in one Ethernet, which the administrator made. So all containers of the
cluster are in one network, and the heads as well, from which launchers reach them.
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
    """The cable of one host."""

    KIND: ClassVar[str] = "uplink"

    cluster: str
    bridge: str
    address: str
    base: Path

    @classmethod
    def of(cls, cluster: str, bridge: str, address: str) -> Self:
        """From a bridge, for a head that is to have this address.

        Raises VicinalError for a bridge that is not there, and users who may not plug it in.
        """
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can plug the containers of {cluster} into the bridge {bridge}",
                "run it as root on all hosts, or let the nodes be virtual machines",
            )
        check_bridge(bridge)
        return cls(cluster, bridge, address, default_base())

    @property
    def needs(self) -> tuple[str, ...]:
        """The head, in whose network it ends."""
        return ("containers/main",)

    def observe(self) -> Observation:
        """It is at the bridge; its other end goes with the head."""
        found = find_interface(self._name)
        if found is None:
            return Observation(Condition.ABSENT)
        if not self._is_ours(found):
            return Observation(Condition.BROKEN, f"the interface {self._name} is not ours")
        if found.get("master") != self.bridge:
            return Observation(Condition.BROKEN, f"it is not at the bridge {self.bridge}")
        return Observation(Condition.READY)

    def create(self) -> None:
        """Plug it in, and give the head its address among those of all hosts."""
        network = ContainerCluster.open(self.cluster, self.base).head_network
        if network is None:
            raise VicinalError(
                "containers have no network of their own here, which those of other hosts reach",
                "see `vicinal status` for why",
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
        """Unplug it, if it is ours; the head is alone with its containers then."""
        found = find_interface(self._name)
        if found is not None and self._is_ours(found):
            ip(["link", "delete", "dev", self._name])

    def _is_ours(self, found: Mapping[str, Any]) -> bool:
        kind = found.get("linkinfo", {}).get("info_kind")
        # One that a killed command made has no mark yet; the name is nobody else's.
        return kind == "veth" and found.get("ifalias", "") in (self._mark, "")

    @property
    def _mark(self) -> str:
        return f"vicinal {os.geteuid()}-{self.cluster} {_END}"

    @property
    def _name(self) -> str:
        # A network interface has 15 letters at most.
        return f"vic-{hashlib.sha256(self._mark.encode()).hexdigest()[:11]}"


def head_of(number: int) -> str:
    """Address of the head of a host, which is so far behind the first that has containers."""
    return str(IPv4Address(head_address(network=True)) - number)
