"""The resources of a cluster, from its file and from its journal."""

from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.layout import node_address
from vicinal.cluster.nodes.placement import place_nodes
from vicinal.cluster.nodes.vm.from_file import vms_of
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.resources.bridge import BridgeResource
from vicinal.cluster.resources.commands import CommandsResource
from vicinal.cluster.resources.containers import ContainerResource, ContainersResource
from vicinal.cluster.resources.doorbell import DoorbellResource
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.host_node import HostNodeResource
from vicinal.cluster.resources.interfaces import CableResource, InterfaceResource
from vicinal.cluster.resources.keys import KeysResource
from vicinal.cluster.resources.libvirt import LibvirtResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.uplink import UplinkResource, head_of
from vicinal.cluster.resources.vfs import (
    CardResource,
    VfResource,
    vf_resources,
)
from vicinal.cluster.resources.vms import VmResource, VmsResource
from vicinal.host.topology import Cpu, NumaNode
from vicinal.host.vf.operations import Vfs

_KINDS = {
    kind.KIND: kind
    for kind in (
        RegionResource,
        CardResource,
        VfResource,
        HostNodeResource,
        ContainersResource,
        UplinkResource,
        ContainerResource,
        InterfaceResource,
        CableResource,
        CommandsResource,
        BridgeResource,
        VmsResource,
        DoorbellResource,
        VmResource,
        GuestsResource,
        KeysResource,
        LibvirtResource,
    )
}


def desired_resources(
    cluster: Cluster,
    cpus: Sequence[Cpu],
    numa: Sequence[NumaNode],
    vfs: Vfs | None = None,
) -> list[Resource]:
    """Return all resources of a cluster file on this host, in order of creation.

    `cpus` and `numa` are the host's processors and NUMA nodes. Raises VicinalError for resources
    that this host cannot have.
    """
    placed = place_nodes(cluster, cpus, numa)
    region = None if cluster.region is None else RegionResource.of(cluster, cluster.region)
    containers = cluster.of(BackEnd.CONTAINER)
    stays = {node.name: node in containers for node in cluster.nodes}
    found: list[Resource] = [] if region is None else [region]
    found += vf_resources(cluster, vfs or Vfs(), stays=stays)
    found += [
        HostNodeResource(cluster.name, node.name, placed[node.name])
        for node in cluster.of(BackEnd.HOST)
    ]
    if containers:
        found += _head(cluster)
    for node in containers:
        path = None if region is None else region.path
        found.append(ContainerResource.of(cluster.name, node, placed[node.name], path))
        interface = InterfaceResource.of(cluster.name, node)
        cable = CableResource.of(cluster.name, node)
        commands = CommandsResource.of(cluster.name, node)
        found += [each for each in (interface, cable, commands) if each is not None]
    if cluster.of(BackEnd.VM):
        found += _vms(cluster, placed, region, cpus, numa)
    return found


def _head(cluster: Cluster) -> list[Resource]:
    """Return the head of a cluster's containers, and its uplink to containers of other hosts."""
    host_part = cluster.host_part
    if host_part is None or host_part.bridge is None:
        return [ContainersResource.of(cluster.name)]
    addresses = {
        each.name: node_address(number, network=True)
        for number, each in enumerate(host_part.containers)
    }
    hosts = list(dict.fromkeys(each.host for each in host_part.containers))
    head = head_of(hosts.index(host_part.host))
    own = {each.name for each in host_part.containers if each.host == host_part.host}
    neighbours = Neighbours.of(head, addresses, own)
    return [
        ContainersResource.of(cluster.name, neighbours),
        UplinkResource.of(cluster.name, host_part.bridge, head),
    ]


def _vms(
    cluster: Cluster,
    placed: Mapping[str, tuple[int, ...]],
    region: RegionResource | None,
    cpus: Sequence[Cpu],
    numa: Sequence[NumaNode],
) -> list[Resource]:
    name = None if region is None else region.path.name
    vms = vms_of(cluster, placed, name, cpus, numa)
    bridges = {vm.bridge: vm.owner for vm in vms if vm.bridge and vm.bridge_is_ours}
    libvirt = LibvirtResource.of(cluster.kept_as, vms[0].uri)
    doorbell = None if region is None else DoorbellResource.of(vms, region.path)
    host_part = cluster.host_part
    present = (
        vms if host_part is None else tuple(each for each in vms if each.name not in host_part.away)
    )
    keys = None
    if host_part is not None:
        keys = KeysResource.of(cluster.kept_as, host_part.fingerprint, host_part.keys)
    return [
        *([] if libvirt is None else [libvirt]),
        *(BridgeResource(bridge, owner) for bridge, owner in bridges.items()),
        *([] if keys is None else [keys]),
        VmsResource.of(vms, host_part, None if keys is None else keys.directory),
        *([] if doorbell is None else [doorbell]),
        *map(VmResource, present),
        *([GuestsResource(present)] if present else []),
    ]


def recorded_resources(entries: Mapping[str, Entry]) -> dict[str, Resource]:
    """Return the resources of a journal's entries, by key.

    Raises VicinalError for kinds of resources that this version does not know.
    """
    return {key: _recorded(entry) for key, entry in entries.items()}


def _recorded(entry: Entry) -> Resource:
    kind = entry.key.partition("/")[0]
    if kind not in _KINDS:
        raise VicinalError(
            f"the cluster has a resource of the kind {kind!r}, which this version of Vicinal does "
            "not know",
            "use the version that created the cluster",
        )
    return _KINDS[kind].from_settings(entry.settings)
