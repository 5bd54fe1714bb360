"""Operations on all VMs of a cluster, or of a host's part of a cluster.

Before the first VM is created, the host must have memory for all VMs that a plan starts. Running
VMs are saved together. VMs whose libvirt is lost are given up, so that the rest can be removed.
"""

from collections.abc import Callable, Mapping

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.applying import Show
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Action, Plan, Step
from vicinal.cluster.plan.resource import Condition, Resource
from vicinal.cluster.resources.doorbell import DoorbellResource
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError


def check_memory(plan: Plan) -> None:
    """Raise VicinalError if the host has too little memory for a plan's VMs and regions.

    The memory of resources that the plan removes counts as free.
    """
    starting = _vms(plan, Action.CREATE, Action.START)
    ending = [
        vm
        for vm in _vms(plan, Action.REMOVE)
        if VmResource(vm).observe().condition is Condition.READY
    ]
    regions = [
        (step.action, step.resource)
        for step in plan.steps
        if isinstance(step.resource, RegionResource)
    ]
    freed = sum(each.held.shared_bytes for action, each in regions if action is Action.REMOVE)
    taken = sum(each.file_bytes for action, each in regions if action is Action.CREATE)
    check_room(starting, ending, taken - freed)


def _vms(plan: Plan, *actions: Action) -> list[Vm]:
    return [
        step.resource.vm
        for step in plan.steps
        if step.action in actions and isinstance(step.resource, VmResource)
    ]


def running_vms(name: str, resources: Mapping[str, Resource]) -> list[Vm]:
    """Return the running VMs among a cluster's resources on this host.

    Raises VicinalError if other nodes run in the cluster, which cannot be saved.
    """
    found = []
    for resource in resources.values():
        if isinstance(resource, VmResource):
            if resource.observe().condition is Condition.READY:
                found.append(resource.vm)
        elif resource.runs and not isinstance(resource, GuestsResource | DoorbellResource):
            raise VicinalError(
                f"{resource.key} of {name} cannot be saved: it is not a virtual machine",
                "stop the cluster with `vicinal stop`, which ends its processes",
            )
    return found


def forget_lost(
    resources: Mapping[str, Resource], journal: Journal, show: Show, say: Callable[[str], None]
) -> list[str]:
    """Give up the VMs whose libvirt does not answer; return their keys.

    `say` gets a message about what may be left of each VM. Other VMs are not changed.
    """
    forgotten: list[str] = []
    lost: dict[str, bool] = {}
    for key, resource in reversed(list(resources.items())):
        if not isinstance(resource, VmResource):
            continue
        uri = resource.vm.uri
        if uri not in lost:
            lost[uri] = _is_lost(uri)
        if lost[uri]:
            show(Step(Action.REMOVE, resource, "its libvirt is lost"))
            journal.write(resource, Event.REMOVING)
            left = resource.forget()
            journal.write(resource, Event.REMOVED)
            say(f"left behind: {left}")
            forgotten.append(key)
    return forgotten


def _is_lost(uri: str) -> bool:
    try:
        hypervisor_at(uri)
    except UnreachableError:
        return True
    return False
