"""The distribution of a job's SR-IOV VFs on a host over the job's nodes on that host.

If the cluster file names VFs, each named node gets one VF of the named card. Otherwise
the VFs of each card are spread evenly over the host's nodes, in order.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster, Node
from vicinal.cluster.file.network import NoNetwork, VfNetwork
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import ETHERNET
from vicinal.integrations.slurm.granted_vfs import GrantedVf
from vicinal.integrations.slurm.node_list import ListedVfs

_DEVICES = Path("/dev/infiniband")
_CONNECTIONS = "rdma_cm"
"""The file for connections by address, shared by all RDMA devices."""


@dataclass(frozen=True)
class NodeVf:
    """A VF of a node."""

    number: int
    """The VF's index on the host, as the plugin counts."""
    vf: GrantedVf
    interface: str
    """The name of its interface in the node; empty if the node has no interface."""
    address: str | None
    """The interface's IP address with prefix length; None: none is set."""


Shares = Mapping[str, Sequence[NodeVf]]
"""The VFs of each node, by the node's name."""


def share_vfs(vfs: Sequence[GrantedVf], nodes: Sequence[Node]) -> Shares:
    """The VFs of each node of this host.

    Raises VicinalError if the VFs do not match the file, or cannot be spread evenly.
    """
    named = [node for node in nodes if isinstance(node.network, VfNetwork)]
    return _by_file(vfs, named) if named else _evenly(vfs, nodes)


def _by_file(vfs: Sequence[GrantedVf], nodes: Sequence[Node]) -> Shares:
    left = list(enumerate(vfs))
    shares = {}
    for node in nodes:
        network = node.network
        assert isinstance(network, VfNetwork)
        found = next((each for each in left if network.card in each[1].cards), None)
        if found is None:
            raise VicinalError(
                f"{node.name!r} needs a VF of {network.card!r}, and the job does not have "
                "enough on its host",
                f"request them: srun --gres=vf:{network.card}:N, one for each node of a host",
            )
        left.remove(found)
        number, vf = found
        ethernet = vf.kind == ETHERNET
        if network.address is not None and not ethernet:
            raise VicinalError(
                f"{node.name!r} has the address {network.address} for an InfiniBand VF, and "
                "the host keeps the interfaces of InfiniBand VFs",
                "remove the address: programs in the node use the RDMA device",
            )
        address = None if network.address is None else str(network.address)
        shares[node.name] = [NodeVf(number, vf, "eth1" if ethernet else "", address)]
    if left:
        raise VicinalError(
            f"the job has {len(vfs)} VFs on this host, and the cluster file names "
            f"{len(nodes)} for its nodes there",
            "request as many as the file names (srun --gres), or remove `vf` from the file",
        )
    return shares


def _evenly(vfs: Sequence[GrantedVf], nodes: Sequence[Node]) -> Shares:
    takers = [node for node in nodes if not isinstance(node.network, NoNetwork)]
    shares: dict[str, list[NodeVf]] = {node.name: [] for node in takers}
    of_cards: dict[str, list[int]] = {}
    for number, vf in enumerate(vfs):
        of_cards.setdefault(vf.cards[0], []).append(number)
    for numbers in of_cards.values():
        if not takers or len(numbers) % len(takers) != 0:
            card = vfs[numbers[0]].cards[-1]
            raise VicinalError(
                f"the job has {len(numbers)} VFs of {card} on this host, which cannot be "
                f"spread evenly over its {len(takers)} nodes there",
                f"request the same number for each node (srun --gres=vf:{card}:N), or name the "
                "nodes with a VF in the cluster file (network: {vf: {card: ...}})",
            )
        each = len(numbers) // len(takers)
        for index, number in enumerate(numbers):
            has = shares[takers[index // each].name]
            ethernet = vfs[number].kind == ETHERNET
            name = f"eth{1 + sum(bool(one.interface) for one in has)}" if ethernet else ""
            has.append(NodeVf(number, vfs[number], name, None))
    return shares


def device_files(share: Sequence[NodeVf]) -> list[Path]:
    """The files of the RDMA devices of a node's VFs.

    Raises VicinalError if the user may not open one of them.
    """
    names = [name for each in share for name in each.vf.files]
    files = [_DEVICES / name for name in (*names, _CONNECTIONS)] if names else []
    for file in files:
        if file.name != _CONNECTIONS and not os.access(file, os.R_OK | os.W_OK):
            raise VicinalError(
                f"the job's user may not open {file} of the job's VF",
                "ask an administrator to set its mode (rdma-core's udev rules set 0666)",
            )
    return [file for file in files if file.exists()]


def listed_vfs(shares: Shares, nodes: Sequence[Node]) -> dict[str, ListedVfs]:
    """The VFs of each node for the list of nodes."""
    return {node.name: _listed(shares.get(node.name, ())) for node in nodes}


def _listed(share: Sequence[NodeVf]) -> ListedVfs:
    return ListedVfs(
        [each.vf.address for each in share],
        [each.interface for each in share if each.interface],
        [device for each in share for device in each.vf.devices],
    )


def sole_interface(cluster: Cluster) -> str | None:
    """The interface of VFs by which all nodes of a job reach each other; None if there is
    none.

    There is one if the file gives every node an address on a VF.
    """
    networks = [node.network for node in cluster.nodes]
    if all(isinstance(each, VfNetwork) and each.address is not None for each in networks):
        return "eth1"
    return None


def check_names_nothing_else(cluster: Cluster, node: Node, network: VfNetwork) -> None:
    """Raise VicinalError if the file sets more than a VF's card: only root and the card set
    more.
    """
    if network.settings != Settings():
        raise VicinalError(
            f"{cluster.file} sets more than the card for the VF of {node.name!r}, which a "
            "Slurm job may not do",
            "remove these settings: only an administrator sets hardware address and VLAN",
        )
