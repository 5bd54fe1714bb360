"""Fits the nodes of an environment, and the memory of virtual machines, to a machine."""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from vicinal.base.sizes import parse_size
from vicinal.labs.study.file.host_facts import HostFacts
from vicinal.labs.study.file.model import Adaptation, Environment, Study
from vicinal.labs.study.file.reading_environments import plain
from vicinal.mpi.libraries import STANDARD, Mpi

HOST = re.compile(r"HOST\d+")
CARD = "CARD"
DEVICE = "ffff:ff:1f.7"
"""The names that a study for any machine gives to its hosts and their card: by its VFs, and
as a whole device. Adaptation replaces them by the names on this machine."""

_VERBS = "verbs"
_SELECTORS = ("FI_PROVIDER", "VICINAL_NET", "FI_VICINAL_NET")

ONE_A_CORE = "at most one node for each core, and at least two nodes"
_AS_MANY_CORES = "nodes have no more processors than the machine has cores"
_LEFT_TO_HOST = "a core is reserved for the host only if two cores are left for nodes"
_FEWER_HOSTS = "only as many hosts as were named"

_LEAST = 640 << 20
_STEP = 64 << 20
_USUAL = "1G"
"""Memory of a virtual machine if the cluster file does not name it."""

_HALF = "all virtual machines together get half of the machine's memory, and at least 640M each"


class Unavailable(Exception):  # noqa: N818 - not an error
    """What a machine cannot provide, and why."""


def fit_environment(
    environment: Environment, facts: HostFacts, adaptations: list[Adaptation]
) -> Environment:
    """The environment as this machine can provide it; appends the changes to `adaptations`.

    Raises Unavailable if the machine lacks something that the environment needs.
    """
    if environment.unsupported is not None:
        raise Unavailable(environment.unsupported)
    cluster: dict[str, Any] = deepcopy(plain(environment.cluster))
    changes = _Changes(environment.name)
    hosts = _fit_hosts(cluster, facts, changes)
    for group in cluster["nodes"]:
        _check_back_end(group, environment.mpi, facts)
        _fit_network(group, facts, hosts)
    _check_verbs(environment, cluster, facts)
    _fit_processors(cluster, facts, hosts, changes)
    adaptations += changes.made
    return replace(environment, cluster=cluster)


class _Changes:
    """Collects the changes of one environment."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.made: list[Adaptation] = []

    def add(self, what: str, why: str) -> None:
        self.made.append(Adaptation(f"environment {self._name}: {what}", why))


def count_of(group: Mapping[str, Any]) -> int:
    """The number of nodes in a group."""
    return int(group.get("count", 1))


def hosts_of(cluster: Mapping[str, Any]) -> int:
    """The number of hosts of a cluster."""
    return len(cluster.get("hosts", ())) or 1


def _fit_hosts(cluster: dict[str, Any], facts: HostFacts, changes: _Changes) -> int:
    """Replace the hosts' names by names of this machine's hosts. Returns the number of hosts."""
    asked = [host["name"] for host in cluster.get("hosts", ())]
    if not any(HOST.fullmatch(name) for name in asked):
        return len(asked) or 1
    if len(facts.hosts) < 2:
        raise Unavailable(
            f"it needs {len(asked)} hosts, and no host besides this one was named: "
            "name the hosts with --host"
        )
    kept = min(len(asked), len(facts.hosts))
    names = dict(zip(asked[:kept], facts.hosts[:kept], strict=True))
    if kept < len(asked):
        changes.add(f"{kept} hosts instead of {len(asked)}", _FEWER_HOSTS)
    cluster["hosts"] = [host | {"name": names[host["name"]]} for host in cluster["hosts"][:kept]]
    groups = []
    for group in cluster["nodes"]:
        given = group.get("host", asked)
        listed = [given] if isinstance(given, str) else given
        those = [names[name] for name in listed if name in names]
        if not those:
            continue  # all nodes of the group were on hosts that do not exist here
        groups.append(group | {"host": those})
        count = max(count_of(group) * len(those) // len(listed), len(those))
        if count != count_of(group):
            _set_count(groups[-1], count)
    cluster["nodes"] = groups
    return kept


def _check_back_end(group: Mapping[str, Any], mpi: Mpi, facts: HostFacts) -> None:
    backend = group.get("backend", "container")
    if backend == "vm" and facts.accelerator is None:
        raise Unavailable(facts.no_vms or "no virtual machine can be started")
    if backend == "vm" and mpi not in STANDARD:
        raise Unavailable(f"the image of virtual machines does not contain {mpi.full_name}")
    if backend != "container":
        return
    runtime = group.get("runtime")
    if not facts.runtimes:
        raise Unavailable("no container runtime is installed: install crun, runc or bubblewrap")
    if runtime is not None and runtime not in facts.runtimes:
        raise Unavailable(f"the container runtime {runtime} is not installed: install it")


def _fit_network(group: dict[str, Any], facts: HostFacts, hosts: int) -> None:
    network = group.get("network")
    if not isinstance(network, dict):
        return
    if "vf" in network:
        wanted = -(-count_of(group) // hosts)
        card = network["vf"]["card"]
        if card == CARD:
            _give_card(network, facts, wanted)
        elif not facts.cards:
            raise Unavailable("no card of this machine can have virtual functions (SR-IOV)")
    given = network.get("device", [])
    devices = [given] if isinstance(given, str) else given
    if DEVICE in devices:
        if not facts.devices:
            raise Unavailable("this machine has no network card with verbs to give to a node")
        # Hosts are equal, so their cards have the same address.
        names = [facts.devices[0] if each == DEVICE else each for each in devices]
        network["device"] = names[0] if isinstance(given, str) else names


def _give_card(network: dict[str, Any], facts: HostFacts, wanted: int) -> None:
    fit = [each for each in facts.cards if each.rdma]
    if not fit:
        raise Unavailable("no card of this machine has verbs and virtual functions (SR-IOV)")
    best = max(fit, key=lambda each: each.vfs)
    if best.vfs < min(wanted, 2):
        raise Unavailable(
            f"{best.name} can have {best.vfs} virtual functions, but {wanted} nodes need one each"
        )
    network["vf"]["card"] = best.name


def _check_verbs(environment: Environment, cluster: Mapping[str, Any], facts: HostFacts) -> None:
    """Raise Unavailable if the environment's variables select verbs and a node has no RDMA
    device.
    """
    if not any(_VERBS in environment.variables.get(name, "") for name in _SELECTORS):
        return
    for group in cluster["nodes"]:
        network = group.get("network")
        own = isinstance(network, dict) and ("vf" in network or "device" in network)
        if not own and (group.get("backend") == "vm" or not facts.rdma):
            raise Unavailable("this machine has no RDMA device with an active port")


def _fit_processors(
    cluster: dict[str, Any], facts: HostFacts, hosts: int, changes: _Changes
) -> None:
    """Reduce nodes and their processors to the number of cores."""
    placement = cluster.get("placement", {"policy": "none"})
    reserve = placement.get("reserve", 0)
    if reserve and facts.cores - reserve < 2:
        changes.add("no core is reserved for the host", _LEFT_TO_HOST)
        placement.pop("reserve")
        reserve = 0
    room = max(facts.cores - reserve, 1)
    _fit_counts(cluster, hosts, max(room, 2 if hosts == 1 else 1), changes)
    nodes = _nodes_a_host(cluster, hosts)
    if placement["policy"] in ("socket", "numa"):
        _fit_groups(placement, facts, nodes, changes)
    for group in cluster["nodes"]:
        asked, most = group.get("cpus", 1), max(room // nodes, 1)
        if asked > most:
            group["cpus"] = most
            changes.add(f"{most} of {asked} processors for each node", _AS_MANY_CORES)
    if placement["policy"] == "core" and _processors_a_host(cluster, hosts) > room:
        changes.add("nodes have no cores of their own", _AS_MANY_CORES)
        placement["policy"] = "none"


def _fit_counts(cluster: dict[str, Any], hosts: int, most: int, changes: _Changes) -> None:
    """Reduce the number of nodes, each group by the same factor."""
    asked = sum(count_of(group) for group in cluster["nodes"])
    if _nodes_a_host(cluster, hosts) <= most:
        return
    for group in cluster["nodes"]:
        _set_count(group, max(count_of(group) * most * hosts // asked, 1))
    changes.add(f"{sum(map(count_of, cluster['nodes']))} nodes instead of {asked}", ONE_A_CORE)


def _set_count(group: dict[str, Any], count: int) -> None:
    """Reduce the number of nodes, and the lists with an entry for each node."""
    group["count"] = count
    for holder in (group, group.get("network")):
        for key in ("pin", "device", "tap"):
            if isinstance(holder, dict) and isinstance(holder.get(key), list):
                holder[key] = holder[key][:count]


def _fit_groups(placement: dict[str, Any], facts: HostFacts, nodes: int, changes: _Changes) -> None:
    """Keep one node for each socket or NUMA node only if the machine has enough of them."""
    policy = placement["policy"]
    there = facts.sockets if policy == "socket" else facts.numa_nodes
    if nodes > there:
        kind = "socket" if policy == "socket" else "NUMA node"
        changes.add(
            f"each node has its own cores instead of its own {kind}",
            f"the machine has {there} of them, for {nodes} nodes",
        )
        placement["policy"] = "core"


def _nodes_a_host(cluster: Mapping[str, Any], hosts: int) -> int:
    return sum(-(-count_of(group) // hosts) for group in cluster["nodes"])


def _processors_a_host(cluster: Mapping[str, Any], hosts: int) -> int:
    return sum(-(-count_of(group) // hosts) * group.get("cpus", 1) for group in cluster["nodes"])


def share_memory(
    study: Study,
    facts: HostFacts,
    unavailable: Mapping[str, str],
    adaptations: list[Adaptation],
) -> Study:
    """The study with virtual machines whose memory fits into half of the machine's memory
    together.
    """
    clusters: list[Mapping[str, Any]] = []
    for environment in study.environments:
        if environment.name not in unavailable and environment.cluster not in clusters:
            clusters.append(environment.cluster)
    wanted = sum(_memory(cluster) for cluster in clusters)
    budget = facts.memory_bytes // 2
    if wanted <= budget:
        return study
    environments = tuple(
        each
        if each.name in unavailable or "vm" not in each.backends
        else _shrink(each, budget / wanted, adaptations)
        for each in study.environments
    )
    return replace(study, environments=environments)


def _memory(cluster: Mapping[str, Any]) -> int:
    """Bytes of the virtual machines that the cluster has on one host."""
    groups = [group for group in cluster["nodes"] if group.get("backend") == "vm"]
    return sum(-(-count_of(group) // hosts_of(cluster)) * _of_node(group) for group in groups)


def _of_node(group: Mapping[str, Any]) -> int:
    return parse_size(str(group.get("memory", _USUAL)))


def _shrink(environment: Environment, part: float, adaptations: list[Adaptation]) -> Environment:
    nodes = []
    for group in environment.cluster["nodes"]:
        asked = _of_node(group)
        fewer = max(int(asked * part) // _STEP * _STEP, _LEAST)
        if group.get("backend") != "vm" or fewer >= asked:
            nodes.append(group)
            continue
        nodes.append({**group, "memory": f"{fewer >> 20}M"})
        adaptations.append(
            Adaptation(
                f"environment {environment.name}: VMs of {fewer >> 20} MiB instead of "
                f"{asked >> 20}",
                _HALF,
            )
        )
    return replace(environment, cluster={**environment.cluster, "nodes": nodes})
