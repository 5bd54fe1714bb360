"""Operations on virtual clusters by name: creating, inspecting, changing and removing them.

Functions import modules that only they need, such as those for clusters over several hosts, because
scripts call `vicinal plan` repeatedly, and it needs none of these modules.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.file.hosts import is_host_part
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.file.reading_region import check_members
from vicinal.cluster.hosts.record import (
    HostRecord,
    check_on_this_host,
    host_records,
    is_half_saved,
    is_saved,
    on_this_host,
)
from vicinal.cluster.ownership import ownership_of
from vicinal.cluster.plan.applying import Show, apply, take_away
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.planning import Action, Plan, Shown, Step, check_plan, make_plan, removal
from vicinal.cluster.plan.resource import Condition, Resource, all_of, find
from vicinal.cluster.plan.state import cluster_names, journal_of, sole_command
from vicinal.cluster.resources.all_vms import check_memory, forget_lost, running_vms
from vicinal.cluster.resources.containers import ContainersResource
from vicinal.cluster.resources.desired import desired_resources, recorded_resources
from vicinal.cluster.resources.host_node import HostNodeResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.vms import VmResource, VmsResource
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.cluster.vm.libvirt.uri import SYSTEM, is_own
from vicinal.host.system import Host
from vicinal.host.topology import read_cpus, read_nodes

if TYPE_CHECKING:
    from vicinal.cluster.hosts.containers import FarContainers
    from vicinal.cluster.nodes.job_nodes import ClusterNodes, OwnNodes
    from vicinal.cluster.nodes.vm.migration import Report
    from vicinal.cluster.status import ClusterState

DEFAULT_FILE = Path("cluster.yaml")


def find_name(named: str | None) -> str:
    """Return the name of a command's cluster.

    It comes from the given name or file, from cluster.yaml, or is the only cluster. A cluster that
    a study or a search created for itself does not count as the only cluster. Raises VicinalError
    if the choice is not clear.
    """
    if named is not None:
        is_file = os.sep in named or named.endswith((".yaml", ".yml"))
        return read_cluster(Path(named)).name if is_file else named
    if DEFAULT_FILE.is_file():
        return read_cluster(DEFAULT_FILE).name
    # A host's part is chosen only if the cluster was created from another host.
    names = unowned_names()
    names = [each for each in names if not is_host_part(each)] or names
    if len(names) == 1:
        return names[0]
    there = f"the clusters {', '.join(names)} exist" if names else "no cluster is up"
    if not names and (owned := [each for each in cluster_names() if not is_host_part(each)]):
        there = f"studies and searches use {', '.join(owned)} for themselves"
    raise VicinalError(
        f"the cluster is not clear: there is no {DEFAULT_FILE} here, and {there}",
        "name a cluster or its file",
    )


def unowned_names() -> list[str]:
    """Return the clusters that `vicinal up` created, and hosts' parts of such clusters."""
    return [each for each in cluster_names() if ownership_of(each) is None]


def plan_cluster(cluster: Cluster) -> Sequence[Shown]:
    """Return the steps that `up` would execute now. Changes nothing.

    Raises VicinalError if `up` would fail for a known reason.
    """
    check_members(cluster)
    if cluster.hosts:
        from vicinal.cluster.hosts.making import plan_over_hosts

        return plan_over_hosts(cluster)
    return _plan(cluster).steps


def _plan(cluster: Cluster) -> Plan:
    recorded = journal_of(cluster.kept_as).entries()
    check_on_this_host(cluster.kept_as, recorded)
    plan = make_plan(
        _desired(_at_its_libvirt(cluster, recorded)), recorded, recorded_resources(recorded)
    )
    faults = Faults()
    for check in (check_plan, check_memory):
        with faults.catch():
            check(plan)
    faults.check()
    return plan


def bring_up(
    cluster: Cluster,
    show: Show = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    settle: Callable[[], None] = lambda: None,
) -> Sequence[Shown]:
    """Create the missing parts of a cluster; return all steps of the plan.

    If a step fails or is interrupted, the steps are rolled back. `show` gets each step, and `say`
    messages about long work that other clusters use too, such as an image. `settle` is that of
    apply(). Raises VicinalError.
    """
    check_members(cluster)
    if cluster.hosts:
        from vicinal.cluster.hosts.making import up_over_hosts

        return up_over_hosts(cluster, show, say)
    with sole_command(cluster.kept_as):
        plan = _plan(cluster)
        new = {each.key: each.resource for each in plan.changes if each.action is Action.CREATE}
        vms = find(new, VmsResource)
        if vms is not None:
            vms.prepare(say)
        apply(plan, journal_of(cluster.kept_as), show, settle)
        return plan.steps


def take_down(
    name: str,
    show: Show = lambda _: None,
    lost: Collection[str] = (),
    *,
    forget_vms: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> bool:
    """Remove all existing parts of a cluster; return whether there were any.

    Hosts in `lost` get no request and are forgotten. With `forget_vms`, VMs whose libvirt does
    not answer are given up, and `say` gets what may be left of them. Raises VicinalError if a part
    could not be removed; the rest is removed then.
    """
    if name not in cluster_names():
        return False
    from vicinal.cluster.hosts.managing import down_over_hosts

    with sole_command(name):
        journal = journal_of(name)
        entries = down_over_hosts(name, journal, show, lost, forget_vms=forget_vms, say=say)
        resources = recorded_resources(entries)
        forgotten = forget_lost(resources, journal, show, say) if forget_vms else []
        try:
            left = [key for key in entries if key not in forgotten]
            take_away(removal(left, resources), journal, show)
        except UnreachableError as error:
            raise UnreachableError(
                error.message,
                f"{error.remedy}; if that libvirt never comes back, "
                f"`vicinal down {name.partition('.')[0]} --forget-vms`",
            ) from error
        return True


def stop_cluster(name: str, show: Show = lambda _: None) -> None:
    """End what runs in the nodes, in reverse order, and keep the nodes. Raises VicinalError."""
    from vicinal.cluster.hosts.connection import Request
    from vicinal.cluster.hosts.managing import over_hosts
    from vicinal.cluster.hosts.saving import repair_save

    with _recorded(name) as resources:
        repair_save(journal_of(name), show)
        over_hosts(name, Request.STOP, show)
        for resource in reversed(resources.values()):
            if resource.runs and resource.observe().condition is Condition.READY:
                show(Step(Action.STOP, resource, "it runs"))
                resource.stop()


def start_cluster(name: str, show: Show = lambda _: None) -> None:
    """Start stopped nodes, and resume saved or paused VMs. Raises VicinalError."""
    from vicinal.cluster.hosts.connection import Request
    from vicinal.cluster.hosts.managing import over_hosts
    from vicinal.cluster.hosts.saving import restore_over_hosts

    with _recorded(name) as resources:
        restore_over_hosts(name, journal_of(name), show)
        over_hosts(name, Request.START, show)
        for resource in resources.values():
            if resource.observe().condition is Condition.STOPPED:
                show(Step(Action.START, resource, "it is stopped"))
                resource.start()


def save_cluster(name: str, say: Callable[[str], None] = lambda _: None) -> None:
    """Save the running VMs of a cluster on all its hosts, and end them.

    start_cluster() restores them. `say` gets messages about repairs before the save. Raises
    VicinalError if the VMs cannot be saved; they then run on.
    """
    from vicinal.cluster.hosts.moving import repair_moves
    from vicinal.cluster.hosts.saving import save_over_hosts
    from vicinal.cluster.nodes.vm.saving import save_vms

    if is_host_part(name):
        raise VicinalError(
            f"{name} cannot be saved alone: it is a host's part of a cluster",
            "save the whole cluster on the host that created it: vicinal save "
            f"{name.partition('.')[0]}",
        )
    with _recorded(name) as resources:
        journal = journal_of(name)
        if host_records(journal.entries()):
            repair_moves(journal, say)
            save_over_hosts(name, journal, say)
            return
        vms = running_vms(name, resources)
        if not vms:
            raise VicinalError(f"no virtual machine of {name} runs", "check `vicinal status`")
        save_vms(vms)


def restore_cluster(name: str, show: Show = lambda _: None) -> None:
    """Restore and resume saved VMs. Raises VicinalError if no VM was saved."""
    vms = all_of(_resources(name), VmResource)
    entries = journal_of(name).entries()
    far = is_saved(entries) or is_half_saved(entries)
    if not far and not any(each.vm.saved.exists() for each in vms):
        raise VicinalError(
            f"{name} has no saved virtual machines", "start its nodes with `vicinal start`"
        )
    start_cluster(name, show)


def migrate_vm(
    name: str, node: str, host: str, *, seconds: float, say: Callable[[str], None]
) -> "Report":
    """Move a VM of a cluster to another of its hosts while the VM's jobs run.

    `seconds` is the time limit of each step. Raises VicinalError if the move fails; the VM then
    stays on its host.
    """
    from vicinal.cluster.hosts.moving import move_node, repair_moves
    from vicinal.cluster.hosts.saving import repair_save

    _check_there(name)
    with sole_command(name):
        journal = journal_of(name)
        repair_save(journal, say=say)
        repair_moves(journal, say)
        return move_node(name, journal, node, host, seconds, say)


def cluster_state(name: str) -> "ClusterState":
    """Return the present state of a cluster. Raises VicinalError if the cluster does not exist."""
    from vicinal.cluster.hosts.managing import state_over_hosts
    from vicinal.cluster.status import state_on_this_host

    resources = _resources(name)
    entries = journal_of(name).entries()
    if host_records(entries):
        return state_over_hosts(name, entries)
    return state_on_this_host(name, entries, resources)


def open_nodes(name: str) -> "ClusterNodes":
    """Return the nodes of a cluster on all its hosts.

    Raises VicinalError if the cluster has no nodes, or if a launcher cannot reach them.
    """
    from vicinal.cluster.hosts.guests import FarGuests

    _check_there(name)
    hosts = host_records(journal_of(name).entries())
    if any(record.containers for record in hosts):
        return _far_containers(name, hosts)
    return FarGuests(name, hosts) if hosts else open_own_nodes(name)


def open_own_nodes(name: str) -> "OwnNodes":
    """Return the nodes of a cluster on this host, which must be of one kind.

    Raises VicinalError if there are no nodes, or nodes of several kinds.
    """
    kinds = _kinds_of_nodes(name)
    if not kinds:
        raise VicinalError(f"the cluster {name} has no nodes", "check `vicinal status`")
    if len(kinds) > 1:
        raise VicinalError(
            f"jobs cannot run in the cluster {name}: its containers and virtual machines have no "
            "network between them",
            "give each kind a cluster of its own",
        )
    return kinds[0]


def _kinds_of_nodes(name: str) -> "list[OwnNodes]":
    """Return the nodes of a cluster on this host, one element for each kind."""
    from vicinal.cluster.nodes.container.jobs import ContainerNodes
    from vicinal.cluster.nodes.host.jobs import HostNodes
    from vicinal.cluster.nodes.vm.guests import VmGuests

    resources = _resources(name)
    found = find(resources, RegionResource)
    region = None if found is None else found.path
    kinds: list[OwnNodes] = []
    vms = [each.vm for each in all_of(resources, VmResource)]
    if vms:
        kinds.append(VmGuests(name, vms, region))
    head = find(resources, ContainersResource)
    if head is not None:
        kinds.append(ContainerNodes(name, head.open, region))
    kinds += [HostNodes(name, each.node, region) for each in all_of(resources, HostNodeResource)]
    return kinds


def _far_containers(name: str, records: Sequence[HostRecord]) -> "FarContainers":
    """Return the containers of a cluster on several hosts.

    Raises VicinalError unless this host has some, because launchers run in this host's head.
    """
    from vicinal.cluster.hosts.containers import FarContainers

    having = [record for record in records if record.containers]
    for record in having:
        if record.is_this:
            head = find(_resources(record.host_part), ContainersResource)
            if head is not None and head.neighbours is not None:
                return FarContainers(having, head.open(), head.neighbours)
    raise VicinalError(
        f"jobs in the containers of {name} cannot start here: this host has none of them",
        f"create the cluster on one of {', '.join(record.host for record in having)}, and run the "
        "job there",
    )


def node_command(name: str, node: str, command: list[str], *, tty: bool) -> list[str]:
    """Return the command line that runs `command` in a node of a cluster, with `tty` a terminal.

    Raises VicinalError if the node does not exist or does not run.
    """
    from vicinal.cluster.hosts.guests import far_command

    _check_there(name)
    for record in host_records(journal_of(name).entries()):
        if node in record.nodes:
            if record.is_this:
                return node_command(record.host_part, node, command, tty=tty)
            return far_command(record, node, command, tty=tty)
    kinds = _kinds_of_nodes(name)
    if not kinds:
        raise VicinalError(f"the cluster {name} has no node {node!r}", "check `vicinal status`")
    nodes = next((each for each in kinds if each.has(node)), kinds[-1])
    return nodes.exec_command(node, command, tty=tty)


@contextmanager
def _recorded(name: str) -> Iterator[dict[str, Resource]]:
    _check_there(name)
    with sole_command(name):
        yield _resources(name)


def _resources(name: str) -> dict[str, Resource]:
    """Return the resources of a cluster on this host, by key."""
    _check_there(name)
    return recorded_resources(on_this_host(journal_of(name).entries()))


def _check_there(name: str) -> None:
    if name not in cluster_names():
        raise VicinalError(f"there is no cluster {name!r}", "create it with `vicinal up`")


def _at_its_libvirt(cluster: Cluster, recorded: Mapping[str, Entry]) -> Cluster:
    """Return the cluster with the libvirt of its existing VMs, unless the user names a libvirt.

    The default libvirt depends on whether the system's libvirt answers now, and existing VMs cannot
    move to another libvirt.
    """
    there = recorded.get("vms/main")
    if there is None or cluster.hypervisor is not None or "LIBVIRT_DEFAULT_URI" in os.environ:
        return cluster
    uri = str(there.settings["uri"])
    return replace(cluster, hypervisor=uri) if uri == SYSTEM or is_own(uri) else cluster


def _desired(cluster: Cluster) -> list[Resource]:
    host = Host()
    allowed = os.sched_getaffinity(0)
    cpus = [cpu for cpu in read_cpus(host) if cpu.number in allowed]
    return desired_resources(cluster, cpus, read_nodes(host))
