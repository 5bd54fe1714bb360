"""The nodes of an environment's cluster, on this host or on several hosts."""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import ask_all, connected
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.nodes.vm.layout import Made
from vicinal.cluster.status import ClusterState, NodeState
from vicinal.cluster.vm.accelerator import Accelerator


def states(state: ClusterState) -> list[ClusterState]:
    """The state of a cluster on this host, or on each of its hosts in their order."""
    if not state.hosts:
        return [state]
    return [host.state for host in state.hosts if host.state is not None]


def nodes_of(state: ClusterState) -> list[NodeState]:
    """All nodes, host by host."""
    return [node for each in states(state) for node in each.nodes]


def accelerator_of(state: ClusterState) -> Made | None:
    """The accelerator of the cluster's virtual machines, the slowest if hosts differ; None without
    virtual machines.
    """
    made = [each.accelerator for each in states(state) if each.accelerator is not None]
    emulating = [each for each in made if each.accelerator is Accelerator.TCG]
    return next(iter(emulating or made), None)


def limitations_of(state: ClusterState) -> list[str]:
    """What hosts could not provide to the cluster, without duplicates."""
    return list(dict.fromkeys(each for found in states(state) for each in found.limitations))


def ranks_on_hosts(state: ClusterState, ranks: int) -> list[Host]:
    """The hosts of a cluster whose nodes are hosts, with the number of ranks for each.

    Hosts without ranks are left out.
    """
    nodes = [host.name for host in state.hosts if host.state for _ in host.state.nodes]
    least, more = divmod(ranks, len(nodes))
    slots: dict[str, int] = {}
    for index, name in enumerate(nodes):
        slots[name] = slots.get(name, 0) + least + (index < more)
    return [Host(name, count) for name, count in slots.items() if count]


def address_of(state: ClusterState, node: NodeState, *, on_hosts: bool) -> str:
    """The address by which other nodes reach a node; `on_hosts` means that nodes are hosts.

    Raises VicinalError if the address is not known.
    """
    if not state.hosts or not on_hosts:
        return node.address
    name = next(
        host.name for host in state.hosts if host.state is not None and node in host.state.nodes
    )
    return _host_address(name, [host.name for host in state.hosts])


def _host_address(name: str, names: Sequence[str]) -> str:
    """The address of a host at which ssh arrived; for this host, the address from which ssh
    came.
    """
    with connected(list(names)) as connections:
        facts = ask_all(connections, lambda each, _: each.hello()).all()
    if not Host(name).is_this:
        address = str(facts[name].get("address", ""))
    else:
        others = [facts[each] for each in names if not Host(each).is_this]
        found = (str(each.get("command_address", "")) for each in others)
        address = next(filter(None, found), "127.0.0.1" if not others else "")
    if not address:
        raise VicinalError(
            f"the address by which other hosts reach {name} is not known",
            "let ssh reach the host over a network that all hosts share",
        )
    return address
