"""The nodes of a job that are containers: created, connected, and listed for tasks."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster, Node
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.layout import REGION
from vicinal.cluster.nodes.container.neighbours import Neighbours
from vicinal.cluster.nodes.container.spec import Bind
from vicinal.cluster.nodes.layout import node_address
from vicinal.cluster.resources.commands import CommandsResource
from vicinal.cluster.resources.containers import container_spec
from vicinal.cluster.resources.uplink import head_of
from vicinal.host import namespaces as kernel
from vicinal.integrations.slurm.joining import UPLINK, Channel
from vicinal.integrations.slurm.node_list import ListedNode, NodeList, Process
from vicinal.integrations.slurm.node_vfs import (
    NodeVf,
    device_files,
    listed_vfs,
    share_vfs,
    sole_interface,
)
from vicinal.integrations.slurm.nodes_job import NodesJob
from vicinal.integrations.slurm.staying import let_go, stay


def make_containers(
    job: NodesJob, file: Cluster, nodes: Sequence[Node], region: tuple[Path, int] | None
) -> NodeList:
    """Create the containers, in a cluster with the file's name; `region` is its file and member
    slots.

    The containers have a network of their own, over all hosts of the job. Slurm limits processors
    and memory. Raises VicinalError; containers that were created end with the supervisor.
    """
    name, base = file.name, job.directory / "containers"
    shares = share_vfs(job.vfs, nodes)
    channel = None if job.channel is None else Channel(job.channel)
    joined = channel is not None and not job.alone and not job.host_network
    neighbours = _neighbours(job, file, nodes) if joined else None
    cluster, _ = ContainerCluster.create(
        name, base, neighbours, own_network=job.alone or neighbours is not None
    )
    if not cluster.network and not job.host_network:
        raise VicinalError(
            f"the nodes cannot have a network of their own ({'; '.join(cluster.limitations)})",
            "install iproute2, or ask an administrator to let nodes use the hosts' network: "
            "`vicinal slurm install --host-network`",
        )
    if channel is not None and neighbours is not None and cluster.head_network is not None:
        channel.join_hosts(cluster.head_network)
        cluster.plug_in(UPLINK, neighbours)
    for node in nodes:
        unbound = replace(node, memory_bytes=None)
        spec = container_spec(name, unbound, (), None if region is None else region[0])
        files = map(str, device_files(shares.get(node.name, ())))
        shown = [Bind(file, file, read_only=False) for file in files]
        cluster.create_node(replace(spec, binds=(*spec.binds, *shown)), node.runtime)
        if channel is not None:
            _take(cluster, channel, node.name, shares.get(node.name, ()))
        if node.commands:
            CommandsResource(name, node.name, node.commands, base).create()
    if channel is not None:
        channel.close()
    first = _first_processes()
    found = [ListedNode(node.name, Process.of(first[node.pid_namespace])) for node in cluster.nodes]
    if len(found) < len(nodes):
        raise VicinalError(
            f"the node {cluster.ended_nodes()[0]!r} ended while other nodes were created",
            "check that the job has enough memory",
        )
    return NodeList(
        found,
        None if region is None else (f"file:{REGION}", region[1]),
        Process.of(_hold_identity(cluster.head_process)) if cluster.unprivileged else None,
        listed_vfs(shares, nodes) if job.vfs else {},
        sole_interface(file) if job.vfs else None,
    )


def _take(cluster: ContainerCluster, channel: Channel, node: str, share: Sequence[NodeVf]) -> None:
    """Ask root to put the interfaces of a node's VFs into its network, and configure them."""
    for each in share:
        if each.interface:
            network = cluster.network_in(node)
            if network is None:
                raise VicinalError(
                    f"the node {node!r} uses the host's network, and cannot get a VF",
                    "remove the VFs, or let nodes have networks of their own",
                )
            given = channel.grant(each.number, network)
            cluster.adopt(node, given, each.interface, each.address)


def _neighbours(job: NodesJob, file: Cluster, nodes: Sequence[Node]) -> Neighbours:
    """The job's nodes on all hosts; addresses follow the order of the file, as on one host."""
    addresses = {
        node.name: node_address(number, network=True) for number, node in enumerate(file.nodes)
    }
    return Neighbours.of(head_of(job.host), addresses, {node.name for node in nodes})


def _first_processes() -> dict[str, int]:
    """The first process of each PID namespace that is visible here."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
                namespace = str((entry / "ns/pid").readlink())
            except OSError:
                continue  # it ended just now
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
            if numbers.split()[-1] == "1":
                found[namespace] = int(entry.name)
    return found


def _hold_identity(head: int) -> int:
    """Start a process in a user namespace where the user has their own number; returns the process.

    Tasks join this namespace. In the nodes' namespace the user is root, because runtimes need that.
    Raises VicinalError if the namespace cannot be created.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        fault = b""
        let_go()
        try:
            user, group = os.geteuid(), os.getegid()
            kernel.enter_user(head)
            kernel.unshare(kernel.CLONE_NEWUSER)
            Path("/proc/self/uid_map").write_text(f"{user} 0 1")
            Path("/proc/self/gid_map").write_text(f"{group} 0 1")
        except OSError as error:
            fault = str(error).encode()
        os.write(writer, fault or b"ok")
        os.close(writer)
        if not fault:
            stay()
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read()
    if said != b"ok":
        raise VicinalError(
            f"the nodes' tasks cannot have their user's number ({said.decode(errors='replace')})",
            "check the limit of user namespaces (sysctl user.max_user_namespaces)",
        )
    return child
