"""The virtual machines that a cluster file requests on this host."""

import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.hosts import HostPartVm
from vicinal.cluster.file.model import BackEnd, Cluster, Node, Policy, RegionSettings
from vicinal.cluster.file.network import DeviceNetwork, NoNetwork, VfNetwork
from vicinal.cluster.file.reading_network import set_up_in_guests
from vicinal.cluster.nodes.placement import reserved_cores
from vicinal.cluster.nodes.vm.image_additions import additions_key
from vicinal.cluster.nodes.vm.links import check_link, link_of
from vicinal.cluster.nodes.vm.network import Link, bridge_for, check_wired, far_vms
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.state import cluster_directory
from vicinal.cluster.vm.libvirt.uri import default_uri
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.host.topology import Cpu, NumaNode
from vicinal.host.vf.owners import owner_of

_MIB = 1 << 20


def vms_of(
    cluster: Cluster,
    placed: Mapping[str, tuple[int, ...]],
    region: str | None,
    cpus: Sequence[Cpu],
    numa: Sequence[NumaNode],
) -> tuple[Vm, ...]:
    """The VMs, on the processors that placement chose, sharing a region in /dev/shm.

    `placed` maps node names to processors of this host. Raises VicinalError if there are more
    VMs than wires can join, or if a bridge, a tap or libvirt does not allow the request.
    """
    nodes = cluster.of(BackEnd.VM)
    owner = f"{os.geteuid()}-{cluster.name}"
    uri = cluster.hypervisor or default_uri()
    _check_devices(nodes, uri)
    links = {node.name: link_of(owner, node) for node in nodes}
    for link in links.values():
        check_link(uri, link, starts=False)
    keys = {each: additions_key(each) for each in {node.additions for node in nodes}}
    host_part = cluster.host_part
    vms = _all_vms(nodes) if host_part is None else host_part.vms
    numbers = {vm.name: number for number, vm in enumerate(vms)}
    joined = [number for number, vm in enumerate(vms) if vm.joined]
    if host_part is None:
        bridge = bridge_for(owner, uri, len(joined))
    elif host_part.bridge is not None:
        bridge = host_part.bridge
        check_link(uri, Link("", bridge=bridge), starts=False)
    else:
        check_wired(len(joined))
        bridge = None
    pinned = cluster.placement.policy is not Policy.NONE
    # QEMU's other threads run on the host's reserved cores, or on the VM's own if none are.
    reserved = reserved_cores(cluster, cpus) if pinned else ()
    strict = cluster.placement.policy is Policy.NUMA
    device = (cluster.region or RegionSettings()).device
    rings = cluster.region is not None and device is RegionDevice.DOORBELL
    doorbell = str(cluster_directory(cluster.kept_as) / "doorbell" / "socket") if rings else None
    return tuple(
        Vm(
            owner=owner,
            name=node.name,
            number=numbers[node.name],
            peers=_others(numbers[node.name], joined),
            uri=uri,
            directory=str(cluster_directory(cluster.kept_as) / "vms"),
            cpus=node.cpus,
            memory_mib=-(-(node.memory_bytes or 0) // _MIB),
            hugepages=node.hugepages,
            processors=placed[node.name],
            emulator=reserved or placed[node.name],
            memory_nodes=_near(placed[node.name], numa) if strict else (),
            region=region,
            region_device=device.value,
            doorbell=doorbell,
            bridge=bridge if numbers[node.name] in joined else None,
            bridge_is_ours=host_part is None,
            far=() if host_part is None else far_vms(host_part, numbers[node.name]),
            link=links[node.name],
            commands=node.commands,
            additions=node.additions,
            additions_key=keys[node.additions],
            device=node.network.device if isinstance(node.network, DeviceNetwork) else None,
            vf=(owner_of(cluster.name, node.name) if isinstance(node.network, VfNetwork) else None),
        )
        for node in nodes
    )


def _check_devices(nodes: Sequence[Node], uri: str) -> None:
    """Raise VicinalError if libvirt may not assign the host devices that nodes request."""
    for node in nodes:
        if isinstance(node.network, VfNetwork | DeviceNetwork):
            check_may_give_away(node.name, uri)
        if isinstance(node.network, VfNetwork) and node.network.address is not None:
            raise set_up_in_guests(f"{node.name}: network.address")


def check_may_give_away(node: str, uri: str) -> None:
    """Raise VicinalError if libvirt at this URI may not assign host devices to the node."""
    if urlsplit(uri).path != "/system":
        raise VicinalError(
            f"{node} requests a device of the host, and libvirt at {uri} may not assign it",
            "run as root with `hypervisor: qemu:///system`",
        )


def _all_vms(nodes: Sequence[Node]) -> tuple[HostPartVm, ...]:
    return tuple(HostPartVm(node.name, "", is_joined(node)) for node in nodes)


def is_joined(node: Node) -> bool:
    """Whether a VM has a network with the other VMs."""
    return not isinstance(node.network, NoNetwork)


def _others(number: int, joined: Sequence[int]) -> tuple[int, ...]:
    return tuple(each for each in joined if each != number) if number in joined else ()


def _near(processors: Sequence[int], numa: Sequence[NumaNode]) -> tuple[int, ...]:
    """The NUMA nodes of these processors; empty if the kernel shows none."""
    return tuple(node.number for node in numa if not set(node.cpus).isdisjoint(processors))
