"""One host's share of a cluster: what the command hands to it, and what the host makes of that."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.hosts import Share, ShareContainer, ShareMachine
from vicinal.cluster.file.model import BackEnd, Cluster, Node
from vicinal.cluster.file.network import FunctionNetwork
from vicinal.cluster.file.reading import parse_cluster
from vicinal.cluster.hosts.record import with_moves
from vicinal.cluster.nodes.vm.from_file import is_joined
from vicinal.cluster.nodes.vm.network import first_port
from vicinal.cluster.vm.guest.identity import KeyTexts, fingerprint


@dataclass(frozen=True)
class Whole:
    """What all hosts of a cluster are told alike: its file, and what was found out or made."""

    cluster: Cluster
    addresses: Mapping[str, str]
    """IPv4 address by which each host is reached by the others; none where nobody needs them."""
    keys: KeyTexts | None
    """None where they are not made yet, or no machine needs some."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """The host of each machine that is on another than the file says."""

    def request(self, host: str, *, with_keys: bool) -> dict[str, Any]:
        """The part of a request that says what a host's share is; keys are secret."""
        return {
            "file": str(self.cluster.file.resolve()),
            "text": self.cluster.text,
            "host": host,
            "addresses": dict(self.addresses),
            "moved": dict(self.moved),
            "fingerprint": "" if self.keys is None else fingerprint(self.keys),
            "keys": dict(self.keys) if self.keys is not None and with_keys else None,
        }


def share_of(request: Mapping[str, Any]) -> Cluster:
    """A host's share as a request describes it. Raises VicinalError, as for any cluster file."""
    cluster = parse_cluster(Path(str(request["file"])), str(request["text"]))
    name = str(request["host"])
    host = next((each for each in cluster.hosts if each.name == name), None)
    if host is None:
        raise VicinalError(f"{cluster.file} names no host {name}", "see what was changed there")
    home = {node.name for node in cluster.nodes if node.host == name}
    moved = {str(node): str(to) for node, to in request["moved"].items()}
    cluster = with_moves(cluster, moved)
    here = {node.name for node in cluster.nodes if node.host == name}
    machines = tuple(
        ShareMachine(node.name, str(node.host), is_joined(node), _card(node))
        for node in cluster.of(BackEnd.VM)
    )
    keys = request["keys"]
    share = Share(
        host=name,
        machines=machines,
        containers=tuple(
            ShareContainer(node.name, str(node.host)) for node in cluster.of(BackEnd.CONTAINER)
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
        share=share,
    )


def _card(node: Node) -> str | None:
    """The card that a node has a function of, as the file names it."""
    return node.network.card if isinstance(node.network, FunctionNetwork) else None


def hosts_with_machines(cluster: Cluster) -> list[str]:
    """The hosts that have virtual machines; only where there are two do these need addresses."""
    return list(dict.fromkeys(str(node.host) for node in cluster.of(BackEnd.VM)))
