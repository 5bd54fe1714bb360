"""Reading the hosts of a cluster file, and the assignment of nodes to hosts."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.wording import nearest
from vicinal.base.yaml import line_of
from vicinal.cluster.file.hosts import ClusterHost
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.cluster.file.network import NoNetwork


def read_hosts(path: Path, values: Any) -> tuple[ClusterHost, ...]:
    """Return the hosts of a file; empty if the file names none.

    Raises VicinalError, with the line, for a host that is named twice or whose address is not an
    IPv4 address.
    """
    found: dict[str, ClusterHost] = {}
    for each in values.get("hosts", ()):
        host = ClusterHost(
            each["name"], each.get("address"), each.get("hypervisor"), each.get("bridge")
        )
        if host.name in found:
            raise VicinalError(
                f"{line_of(path, each, 'name')}: the host {host.name} is listed twice",
                "list it once",
            )
        if host.address is not None:
            try:
                IPv4Address(host.address)
            except AddressValueError as error:
                raise VicinalError(
                    f"{line_of(path, each, 'address')}: {host.address!r} is not an IPv4 address",
                    "write an address such as 10.0.0.1, without a prefix length",
                ) from error
        found[host.name] = host
    return tuple(found.values())


def hosts_of_group(
    path: Path, index: int, group: Mapping[str, Any], count: int, hosts: Sequence[ClusterHost]
) -> list[str | None]:
    """Return the host of each of `count` nodes, None without hosts.

    Consecutive nodes share a host, and the hosts' node counts differ by at most one. Raises
    VicinalError, with the line, for a host that is not under `hosts` or that is named twice.
    """
    known = [host.name for host in hosts]
    given = group.get("host", known)
    named = [given] if isinstance(given, str) else list(given)
    for name in named:
        if name not in known:
            raise VicinalError(
                f"{line_of(path, group, 'host')}: nodes[{index}] is on the host {name!r}, "
                "which is not under hosts",
                nearest(name, known) if known else "list the hosts under hosts, or remove host",
            )
        if named.count(name) > 1:
            raise VicinalError(
                f"{line_of(path, group, 'host')}: nodes[{index}] has the host {name} twice",
                "name each host once; nodes are spread evenly",
            )
    if not named:
        return [None] * count
    return [named[number * len(named) // count] for number in range(count)]


def check_hosts(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Yield errors, with the line, for settings of hosts that have no effect or conflict."""
    for each in values.get("hosts", ()):
        nodes = [node for node in cluster.nodes if node.host == each["name"]]
        if not nodes:
            yield VicinalError(
                f"{line_of(path, each, 'name')}: the host {each['name']} has no nodes",
                "assign nodes to it, or remove it",
            )
        if "hypervisor" in each and all(node.backend is not BackEnd.VM for node in nodes):
            yield VicinalError(
                f"{line_of(path, each, 'hypervisor')}: hypervisor is set, and no node of "
                f"{each['name']} is a virtual machine",
                "remove it, or give nodes the backend vm",
            )
    yield from _check_bridges(path, cluster, values)
    yield from _check_containers(path, cluster, values)
    if "port" in values and len({node.host for node in cluster.of(BackEnd.VM)}) < 2:
        yield VicinalError(
            f"{line_of(path, values, 'port')}: port is for the wires between virtual machines of "
            "different hosts, and the file has no such VMs",
            "remove it",
        )


def _check_containers(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Yield errors for containers of different hosts without a network between them."""
    bridges = {host.name: host.bridge for host in cluster.hosts}
    containers = [node for node in cluster.of(BackEnd.CONTAINER) if node.host is not None]
    for each in values.get("hosts", ()):
        node = next((node for node in containers if node.host == each["name"]), None)
        if node is not None and bridges[each["name"]] is None:
            yield VicinalError(
                f"{line_of(path, each, 'name')}: {node.name} is a container on the host "
                f"{node.host}, which has no bridge: containers of different hosts reach each other "
                "only by bridges",
                "name a bridge of each host, all in one network, or give nodes the backend vm",
            )
    if not containers:
        return
    position = line_of(path, values, "hosts")
    if vms := cluster.of(BackEnd.VM):
        yield VicinalError(
            f"{position}: {containers[0].name} is a container, and {vms[0].name} a virtual "
            "machine: on several hosts both kinds would have the same addresses",
            "give each kind a cluster and a VLAN of its own",
        )
    for node in containers:
        if isinstance(node.network, NoNetwork):
            yield VicinalError(
                f"{position}: {node.name} is a container without a network, and a job on several "
                "hosts needs a network of all containers",
                "remove its network key, or remove hosts",
            )


def _check_bridges(path: Path, cluster: Cluster, values: Any) -> Iterator[VicinalError]:
    """Yield errors if only some hosts have a bridge for their nodes."""
    bridges = {host.name: host.bridge for host in cluster.hosts}
    have = {str(node.host) for node in cluster.nodes if node.backend is not BackEnd.HOST}
    for each in values.get("hosts", ()):
        if "bridge" in each and each["name"] not in have:
            yield VicinalError(
                f"{line_of(path, each, 'bridge')}: bridge is set, and no node of "
                f"{each['name']} is a virtual machine or a container",
                "remove it, or give nodes the backend vm or container",
            )
        missing = [name for name in bridges if name in have and bridges[name] is None]
        if "bridge" in each and missing:
            yield VicinalError(
                f"{line_of(path, each, 'bridge')}: {each['name']} has a bridge for its "
                f"nodes, and {missing[0]} has none",
                "name a bridge of each host, all in one network, or remove all bridges",
            )
