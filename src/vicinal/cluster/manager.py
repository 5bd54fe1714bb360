"""Virtual clusters, by their names: what is there of them, making them, and taking them away.

Functions import what only they need, such as what clusters over several hosts take: `vicinal plan`
is called again and again and loads none of that.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.file.hosts import is_share
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
from vicinal.cluster.resources.all_machines import check_memory, forget_lost, running_machines
from vicinal.cluster.resources.containers import ContainersResource
from vicinal.cluster.resources.desired import desired_resources, recorded_resources
from vicinal.cluster.resources.machines import MachineResource, MachinesResource
from vicinal.cluster.resources.native import NativeResource
from vicinal.cluster.resources.region import RegionResource
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
    """The name of the cluster that a command is for: named, or by its file, or the only one.

    One that a study or a search made for itself is never the only one: whoever names none does not
    mean it. Raises VicinalError where it is not clear which.
    """
    if named is not None:
        is_file = os.sep in named or named.endswith((".yaml", ".yml"))
        return read_cluster(Path(named)).name if is_file else named
    if DEFAULT_FILE.is_file():
        return read_cluster(DEFAULT_FILE).name
    # A host's share of a cluster is meant only where the cluster itself is not made from here.
    names = unowned_names()
    names = [each for each in names if not is_share(each)] or names
    if len(names) == 1:
        return names[0]
    there = f"there are {', '.join(names)}" if names else "none is up"
    if not names and (owned := [each for each in cluster_names() if not is_share(each)]):
        there = f"studies and searches made {', '.join(owned)} for themselves"
    raise VicinalError(
        f"which cluster is not clear: there is no {DEFAULT_FILE} here, and {there}",
        "name one, or its file",
    )


def unowned_names() -> list[str]:
    """The clusters that `vicinal up` made, and shares of such."""
    return [each for each in cluster_names() if ownership_of(each) is None]


def plan_cluster(cluster: Cluster) -> Sequence[Shown]:
    """What `up` would do now. Changes nothing. Raises VicinalError for what cannot be."""
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
    """Make what is missing of a cluster; returns what was done.

    What fails or is interrupted is rolled back. `say` is told of what takes long and is not the
    cluster's alone, such as an image. `settle` is as for apply(). Raises VicinalError.
    """
    check_members(cluster)
    if cluster.hosts:
        from vicinal.cluster.hosts.making import up_over_hosts

        return up_over_hosts(cluster, show, say)
    with sole_command(cluster.kept_as):
        plan = _plan(cluster)
        new = {each.key: each.resource for each in plan.changes if each.action is Action.CREATE}
        machines = find(new, MachinesResource)
        if machines is not None:
            machines.prepare(say)
        apply(plan, journal_of(cluster.kept_as), show, settle)
        return plan.steps


def take_down(
    name: str,
    show: Show = lambda _: None,
    lost: Collection[str] = (),
    *,
    forget_machines: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> bool:
    """Take a cluster away, however much of it is there; returns whether there was anything.

    Of one over several hosts, those in `lost` are not asked, and forgotten. With `forget_machines`
    those machines are given up whose libvirt does not answer, and `say` is told what may be left.
    Raises VicinalError where something could not be taken away; the rest is gone then.
    """
    if name not in cluster_names():
        return False
    from vicinal.cluster.hosts.managing import down_over_hosts

    with sole_command(name):
        journal = journal_of(name)
        entries = down_over_hosts(
            name, journal, show, lost, forget_machines=forget_machines, say=say
        )
        resources = recorded_resources(entries)
        forgotten = forget_lost(resources, journal, show, say) if forget_machines else []
        try:
            left = [key for key in entries if key not in forgotten]
            take_away(removal(left, resources), journal, show)
        except UnreachableError as error:
            raise UnreachableError(
                error.message,
                f"{error.remedy}; if that libvirt never comes back, "
                f"`vicinal down {name.partition('.')[0]} --forget-machines`",
            ) from error
        return True


def stop_cluster(name: str, show: Show = lambda _: None) -> None:
    """End what runs in the nodes, the last first; they stay. Raises VicinalError."""
    from vicinal.cluster.hosts.connection import Request
    from vicinal.cluster.hosts.managing import over_hosts
    from vicinal.cluster.hosts.saving import repair_save

    with _recorded(name) as resources:
        repair_save(journal_of(name), show)
        over_hosts(name, Request.STOP, show)
        for resource in reversed(resources.values()):
            if resource.runs and resource.observe().condition is Condition.READY:
                show(Step(Action.STOP, resource, "it is to stop"))
                resource.stop()


def start_cluster(name: str, show: Show = lambda _: None) -> None:
    """Let stopped nodes run again. Raises VicinalError."""
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
    """Keep the virtual machines of a cluster as they stand, on all its hosts, and end them.

    start_cluster() lets them go on. `say` is told of what had to be repaired first. Raises
    VicinalError where that cannot be; they then run on.
    """
    from vicinal.cluster.hosts.moving import repair_moves
    from vicinal.cluster.hosts.saving import save_over_hosts
    from vicinal.cluster.nodes.vm.saving import save_machines

    if is_share(name):
        raise VicinalError(
            f"{name} is one host's share of a cluster, and the machines of other hosts would miss "
            "its own",
            f"save all of it where it was made: vicinal save {name.partition('.')[0]}",
        )
    with _recorded(name) as resources:
        journal = journal_of(name)
        if host_records(journal.entries()):
            repair_moves(journal, say)
            save_over_hosts(name, journal, say)
            return
        machines = running_machines(name, resources)
        if not machines:
            raise VicinalError(f"no virtual machine of {name} runs", "see `vicinal status`")
        save_machines(machines)


def restore_cluster(name: str, show: Show = lambda _: None) -> None:
    """Let saved virtual machines go on. Raises VicinalError where none were saved."""
    machines = all_of(_resources(name), MachineResource)
    entries = journal_of(name).entries()
    far = is_saved(entries) or is_half_saved(entries)
    if not far and not any(each.machine.saved.exists() for each in machines):
        raise VicinalError(f"nothing was saved of {name}", "call `vicinal start`")
    start_cluster(name, show)


def migrate_machine(
    name: str, node: str, host: str, *, seconds: float, say: Callable[[str], None]
) -> "Report":
    """Move a virtual machine of a cluster to another of its hosts while its jobs run.

    `seconds` are for each step. Raises VicinalError where that cannot be; all is then as before.
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
    """What is there of a cluster now. Raises VicinalError where nothing is."""
    from vicinal.cluster.hosts.managing import state_over_hosts
    from vicinal.cluster.status import state_on_this_host

    resources = _resources(name)
    entries = journal_of(name).entries()
    if host_records(entries):
        return state_over_hosts(name, entries)
    return state_on_this_host(name, entries, resources)


def open_nodes(name: str) -> "ClusterNodes":
    """The nodes of a cluster, on all its hosts.

    Raises VicinalError where there are none, or where no launcher gets from one to the other.
    """
    from vicinal.cluster.hosts.guests import FarGuests

    _check_there(name)
    hosts = host_records(journal_of(name).entries())
    if any(record.containers for record in hosts):
        return _far_containers(name, hosts)
    return FarGuests(name, hosts) if hosts else open_own_nodes(name)


def open_own_nodes(name: str) -> "OwnNodes":
    """The nodes that a cluster has on this host, which are of one kind.

    Raises VicinalError where there are none, or of two kinds.
    """
    kinds = _kinds_of_nodes(name)
    if not kinds:
        raise VicinalError(f"the cluster {name} has no nodes", "see `vicinal status`")
    if len(kinds) > 1:
        raise VicinalError(
            f"the cluster {name} has containers and virtual machines, which have no network "
            "between them",
            "give each kind a cluster of its own",
        )
    return kinds[0]


def _kinds_of_nodes(name: str) -> "list[OwnNodes]":
    """The nodes that a cluster has on this host, kind by kind."""
    from vicinal.cluster.nodes.container.jobs import ContainerNodes
    from vicinal.cluster.nodes.host.jobs import HostNodes
    from vicinal.cluster.nodes.vm.guests import MachineGuests

    resources = _resources(name)
    found = find(resources, RegionResource)
    region = None if found is None else found.path
    kinds: list[OwnNodes] = []
    machines = [each.machine for each in all_of(resources, MachineResource)]
    if machines:
        kinds.append(MachineGuests(name, machines, region))
    head = find(resources, ContainersResource)
    if head is not None:
        kinds.append(ContainerNodes(name, head.open, region))
    kinds += [HostNodes(name, each.node, region) for each in all_of(resources, NativeResource)]
    return kinds


def _far_containers(name: str, records: Sequence[HostRecord]) -> "FarContainers":
    """Containers on several hosts, one of which must be this: launchers run among its own."""
    from vicinal.cluster.hosts.containers import FarContainers

    having = [record for record in records if record.containers]
    for record in having:
        if record.is_this:
            head = find(_resources(record.share), ContainersResource)
            if head is not None and head.neighbours is not None:
                return FarContainers(having, head.open(), head.neighbours)
    raise VicinalError(
        f"jobs in the containers of {name} are started on a host that has some of them",
        f"have one of {', '.join(record.host for record in having)} make the cluster, and run it "
        "there",
    )


def node_command(name: str, node: str, command: list[str], *, tty: bool) -> list[str]:
    """The command line that runs `command` in a node of a cluster, with a terminal or without.

    Raises VicinalError where the node is not there, or does not run.
    """
    from vicinal.cluster.hosts.guests import far_command

    _check_there(name)
    for record in host_records(journal_of(name).entries()):
        if node in record.nodes:
            if record.is_this:
                return node_command(record.share, node, command, tty=tty)
            return far_command(record, node, command, tty=tty)
    kinds = _kinds_of_nodes(name)
    if not kinds:
        raise VicinalError(f"the cluster {name} has no {node}", "see `vicinal status`")
    nodes = next((each for each in kinds if each.has(node)), kinds[-1])
    return nodes.exec_command(node, command, tty=tty)


@contextmanager
def _recorded(name: str) -> Iterator[dict[str, Resource]]:
    _check_there(name)
    with sole_command(name):
        yield _resources(name)


def _resources(name: str) -> dict[str, Resource]:
    """What this host has of it."""
    _check_there(name)
    return recorded_resources(on_this_host(journal_of(name).entries()))


def _check_there(name: str) -> None:
    if name not in cluster_names():
        raise VicinalError(f"there is no cluster {name}", "make it with `vicinal up`")


def _at_its_libvirt(cluster: Cluster, recorded: Mapping[str, Entry]) -> Cluster:
    """The cluster with the libvirt that has its machines, where nobody names one.

    Which that would be depends on whether the system's answers now, and machines do not move.
    """
    there = recorded.get("machines/main")
    if there is None or cluster.hypervisor is not None or "LIBVIRT_DEFAULT_URI" in os.environ:
        return cluster
    uri = str(there.settings["uri"])
    return replace(cluster, hypervisor=uri) if uri == SYSTEM or is_own(uri) else cluster


def _desired(cluster: Cluster) -> list[Resource]:
    host = Host()
    allowed = os.sched_getaffinity(0)
    cpus = [cpu for cpu in read_cpus(host) if cpu.number in allowed]
    return desired_resources(cluster, cpus, read_nodes(host))
