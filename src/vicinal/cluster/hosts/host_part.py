"""A host's part of a cluster: the command's request, and the cluster that it describes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.hosts import HostPart, HostPartContainer, HostPartVm
from vicinal.cluster.file.model import BackEnd, Cluster, Node
from vicinal.cluster.file.network import VfNetwork
from vicinal.cluster.file.reading import parse_cluster
from vicinal.cluster.hosts.record import with_moves
from vicinal.cluster.nodes.vm.from_file import is_joined
from vicinal.cluster.nodes.vm.network import first_port
from vicinal.cluster.vm.guest.identity import KeyTexts, fingerprint


@dataclass(frozen=True)
class Whole:
    """The facts that all hosts of a cluster get: the file, addresses, keys and moves."""

    cluster: Cluster
    addresses: Mapping[str, str]
    """IPv4 address by which other hosts reach each host; empty if none needs it."""
    keys: KeyTexts | None
    """The VMs' keys; None if they do not exist yet, or no VM needs them."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """The present host of each VM that is not on its host in the file."""

    def request(self, host: str, *, with_keys: bool) -> dict[str, Any]:
        """Return the fields of a request that describe a host's part.

        The keys, which are secret, are included only with `with_keys`.
        """
        return {
            "file": str(self.cluster.file.resolve()),
            "text": self.cluster.text,
            "host": host,
            "addresses": dict(self.addresses),
            "moved": dict(self.moved),
            "fingerprint": "" if self.keys is None else fingerprint(self.keys),
            "keys": dict(self.keys) if self.keys is not None and with_keys else None,
        }


def host_part_of(request: Mapping[str, Any]) -> Cluster:
    """Return the part that a request describes.

    Raises VicinalError as parse_cluster() does, and if the file does not name the host.
    """
    cluster = parse_cluster(Path(str(request["file"])), str(request["text"]))
    name = str(request["host"])
    host = next((each for each in cluster.hosts if each.name == name), None)
    if host is None:
        raise VicinalError(
            f"{cluster.file} does not name the host {name!r}", "check the file's hosts"
        )
    home = {node.name for node in cluster.nodes if node.host == name}
    moved = {str(node): str(to) for node, to in request["moved"].items()}
    cluster = with_moves(cluster, moved)
    here = {node.name for node in cluster.nodes if node.host == name}
    vms = tuple(
        HostPartVm(node.name, str(node.host), is_joined(node), _card(node))
        for node in cluster.of(BackEnd.VM)
    )
    keys = request["keys"]
    host_part = HostPart(
        host=name,
        vms=vms,
        containers=tuple(
            HostPartContainer(node.name, str(node.host)) for node in cluster.of(BackEnd.CONTAINER)
        ),
        addresses={str(each): str(address) for each, address in request["addresses"].items()},
        port=cluster.port or first_port(cluster.name),
        fingerprint=str(request["fingerprint"]),
        bridge=host.bridge,
        away=frozenset(home - here),
        keys=None if keys is None else {str(each): str(text) for each, text in keys.items()},
    )
    return replace(
        cluster,
        nodes=tuple(node for node in cluster.nodes if node.name in home | here),
        hosts=(),
        hypervisor=host.hypervisor or cluster.hypervisor,
        host_part=host_part,
    )


def _card(node: Node) -> str | None:
    """Return the file's name of the card of a node's VF; None without a VF."""
    return node.network.card if isinstance(node.network, VfNetwork) else None


def hosts_with_vms(cluster: Cluster) -> list[str]:
    """Return the hosts with VMs; they need addresses only if there are at least two."""
    return list(dict.fromkeys(str(node.host) for node in cluster.of(BackEnd.VM)))
